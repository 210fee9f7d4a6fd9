"""Sweeping: what is due, what is overdue, what has outlived its retention, and which queue we know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from holdfast.contracts.ledger import DueEntry, Pruned, Status

from .entries import new_mark
from .foreign import ELSEWHERE, letter_id_of
from .importing import mend
from .instants import instant_of
from .link import LONG, Collection, Document, Link
from .records import RecordCollections
from .schema import FACTS, WAITING
from .workload_collections import AllCollections, WorkloadCollections

# Seconds that an update of many, and of one, may wait for documents that somebody holds.
_TOGETHER: Final = 2.0
_ALONE: Final = 0.5

_SETTLED: Final = [status.value for status in Status if status.terminal]

# --- due and overdue ------------------------------------------------------------------------------------------


async def due(link: Link, records: WorkloadCollections, limit: int, again_after: timedelta) -> list[DueEntry]:
    """Entries to republish, each postponed so that no other sweeper takes it too.

    Sweepers race for the oldest. One that lost looks again, so that together they do not leave a job for later.
    An entry that another system's worker has settled is made whole; one that it has just begun is left to it.
    """
    entries = records.entries
    ours: list[Document] = []
    held: list[str] = []
    while len(ours) < limit:
        now = await link.about_now()
        found = await _oldest(link, entries, now, limit - len(ours), held)
        if not found:
            break
        ours += await _postpone(link, entries, found, now, again_after, held)
    settled = [each["_id"] for each in ours if each["status"] in _SETTLED]
    if settled:
        await mend(link, records, settled)
    return [_due_entry(each) for each in ours if each["status"] not in _SETTLED and not _begun(each, again_after)]


def _begun(document: Mapping[str, Any], lately: timedelta) -> bool:
    """Whether another system's worker, which has no lease, has the job in work, as far as can be known."""
    if document["status"] != Status.PROCESSING.value or "leaseUntil" in document:
        return False
    changed = instant_of(document["updatedAt"])
    return changed is not None and changed > document["now"] - lately


async def unsettled(link: Link, entries: Collection, job_ids: Sequence[str]) -> list[DueEntry]:
    """Those of these jobs that are not settled, and that only we write."""
    wanted = {"_id": {"$in": list(job_ids)}, "status": {"$in": [*WAITING, Status.PROCESSING.value]}}
    found = await link.run(lambda: entries.find(wanted, _due_fields(link)).to_list())
    return [entry for entry in map(_due_entry, found) if not entry.foreign]


def _due_fields(link: Link) -> Document:
    names = ("status", "body", "priority", "attemptCount", "notBefore", "leaseUntil", "generation", "updatedAt")
    return {**dict.fromkeys(names, 1), "tried": {"$size": "$attemptHistory"}, "now": link.clock.now()}


def _due_entry(document: Mapping[str, Any]) -> DueEntry:
    """An entry that is not settled. Another system's worker counts attempts that we do not know, or dates as text."""
    changed = document["updatedAt"]
    foreign = not isinstance(changed, datetime) or document["attemptCount"] != document["tried"]
    return DueEntry(
        document["_id"],
        document["body"],
        document["priority"],
        document["tried"],
        max(timedelta(0), document["notBefore"] - document["now"]),
        document["generation"],
        document["now"] if foreign else changed,
        foreign,
    )


async def _oldest(link: Link, entries: Collection, now: datetime, limit: int, held: Sequence[str]) -> list[str]:
    wanted: Document = {"dueAt": {"$lte": now}}
    if held:
        wanted["_id"] = {"$nin": list(held)}
    found = await link.run(lambda: entries.find(wanted, {"_id": 1}).sort("dueAt", ASCENDING).limit(limit).to_list())
    return [each["_id"] for each in found]


async def _postpone(  # noqa: PLR0913, PLR0917 - what to postpone, and until when
    link: Link,
    entries: Collection,
    job_ids: Sequence[str],
    now: datetime,
    again_after: timedelta,
    held: list[str],
) -> list[Document]:
    """Postpone those that are still due; return them in the order of the question.

    One that somebody's transaction holds is in work, whatever it says: it goes to ``held``, for another sweep.
    """
    mark = new_mark()
    later = [{"$set": {"dueAt": link.clock.now(again_after), "sweepId": mark}}]
    reading = _due_fields(link)

    async def postpone(ids: Sequence[str]) -> None:
        await entries.update_many({"_id": {"$in": list(ids)}, "dueAt": {"$lte": now}}, later)

    if not await link.in_time(lambda: postpone(job_ids), _TOGETHER):
        # One entry in a dead client's transaction makes all the others wait: now each goes by itself.
        done = await asyncio.gather(*(link.in_time(partial(postpone, [job_id]), _ALONE) for job_id in job_ids))
        held += [job_id for job_id, in_time in zip(job_ids, done, strict=True) if not in_time]
    ours = {"_id": {"$in": list(job_ids)}, "sweepId": mark}
    found = {each["_id"]: each for each in await link.run(lambda: entries.find(ours, reading).to_list())}
    return [found[job_id] for job_id in job_ids if job_id in found]


async def overdue(link: Link, entries: Collection, limit: int) -> list[str]:
    """Jobs that wait past their deadline."""
    past = {"deadline": {"$lte": await link.about_now()}, "status": {"$in": list(WAITING)}}
    found = await link.run(
        lambda: entries.find(past, {"_id": 1}).sort("deadline", ASCENDING).limit(limit).to_list(),
    )
    return [each["_id"] for each in found]


# --- the queue's mark -----------------------------------------------------------------------------------------


def _fact(records: WorkloadCollections) -> str:
    """Each workload remembers the queue for itself: another process may run other workloads."""
    return f"queue:{records.name}"


async def known_queues(link: Link, records: Sequence[WorkloadCollections]) -> dict[str, str]:
    """The mark of the queue that was met last, for each workload that has met one."""
    facts = [_fact(each) for each in records]
    found = await link.run(lambda: link.collection(FACTS).find({"_id": {"$in": facts}}).to_list())
    marks = {each["_id"]: each["value"] for each in found}
    return {each.name: marks[_fact(each)] for each in records if _fact(each) in marks}


async def detect_queue_reset(link: Link, records: AllCollections, epoch: str) -> bool:
    """Compare and remember. Of many that meet a new queue, the one that remembers it first answers True."""
    known = await known_queues(link, list(records))
    won = [
        each.name
        for each in records
        if known.get(each.name) != epoch and await _meet(link, each, known.get(each.name), epoch)
    ]
    # Each workload has a fact of its own, and different processes may win them. The first one answers for all.
    return next((each.name for each in records if each.name in known), None) in won


async def _meet(link: Link, records: WorkloadCollections, known: str | None, epoch: str) -> bool:
    facts, name = link.collection(FACTS), _fact(records)
    if known is None:
        await link.run(lambda: _remember_first(facts, name, epoch))
        return False
    # First the work, then the fact: whoever dies in between leaves both to the next.
    everything_due: list[Document] = [{"$set": {"dueAt": link.clock.now()}}]
    # Without what another system recorded: nobody here has the body to publish.
    waiting = {"status": {"$in": list(WAITING)}, "fence": {"$exists": True}}
    await link.run(lambda: records.entries.update_many(waiting, everything_due), seconds=LONG)
    gone = {"publishedTo": ELSEWHERE}
    await link.run(lambda: records.letters.update_many(gone, {"$set": {"publishedTo": None}}), seconds=LONG)
    changed = await link.run(
        lambda: facts.update_one({"_id": name, "value": known}, {"$set": {"value": epoch}}),
    )
    return changed.modified_count == 1


async def _remember_first(facts: Collection, name: str, epoch: str) -> None:
    try:
        await facts.insert_one({"_id": name, "value": epoch})
    except DuplicateKeyError:  # somebody else was first: the next round compares
        return


# --- the end of retention -------------------------------------------------------------------------------------

_EXPIRES: Final = "expiresAt"


async def prune(link: Link, records: AllCollections, record_collections: RecordCollections, limit: int) -> Pruned:
    """Delete what has outlived its retention: letters first, then entries that no letter tells of (I12), and documents.

    Of ours, only terminal entries have an ``expiresAt``, and none before that of its last letter; another system may
    leave it on an entry that it has taken up again.
    """
    now = await link.about_now()
    letters: dict[str, list[str]] = {}
    left = limit
    for each in records:
        if left > 0 and (gone := await _delete(link, each.letters, _EXPIRES, now, left)):
            letters[each.name] = [letter_id_of(letter) for letter in gone]
            left -= len(gone)
    entries = 0
    for each in records:
        if entries < limit:
            untold = _settled_without_letters(each)
            entries += len(await _delete(link, each.entries, _EXPIRES, now, limit - entries, untold))
    documents = 0
    for record_collection in record_collections:
        if record_collection.kind.expires is not None and documents < limit:
            documents += len(
                await _delete(
                    link, record_collection.collection, record_collection.kind.expires, now, limit - documents
                )
            )
    return Pruned(entries, letters, documents)


def _settled_without_letters(records: WorkloadCollections) -> list[Document]:
    letter = {
        "from": records.letters.name,
        "localField": "idempotencyKey",
        "foreignField": "idempotencyKey",
        "pipeline": [{"$limit": 1}, {"$project": {"_id": 1}}],
        "as": "letters",
    }
    return [{"$match": {"status": {"$in": _SETTLED}}}, {"$lookup": letter}, {"$match": {"letters": []}}]


async def _delete(  # noqa: PLR0913, PLR0917 - what, and how much of it
    link: Link,
    collection: Collection,
    expires: str,
    now: datetime,
    limit: int,
    unless: Sequence[Document] = (),
) -> list[Any]:
    """Delete the oldest of what is over; return their ids."""
    over: Document = {expires: {"$lte": now}}
    pipeline = [{"$match": over}, {"$sort": {expires: 1}}, *unless, {"$limit": limit}, {"$project": {"_id": 1}}]

    async def look() -> list[Document]:
        return await (await collection.aggregate(pipeline)).to_list()

    ids = [each["_id"] for each in await link.run(look, seconds=LONG)]
    if ids:
        # Only what is still over: a key may be new again by now.
        await link.run(lambda: collection.delete_many({"_id": {"$in": ids}} | over), seconds=LONG)
    return ids
