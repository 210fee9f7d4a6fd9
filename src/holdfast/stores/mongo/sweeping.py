"""Sweeping: due and overdue entries, the end of retention, and the epoch of the queue."""

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
from .importing import repair
from .instants import instant_of
from .link import LONG, Collection, Document, Link
from .records import RecordCollections
from .schema import FACTS, WAITING
from .workload_collections import AllCollections, WorkloadCollections

# Seconds that an update of many entries, and of one entry, may wait for documents that a transaction holds.
_TOGETHER: Final = 2.0
_ALONE: Final = 0.5

_SETTLED: Final = [status.value for status in Status if status.terminal]

# --- due and overdue ------------------------------------------------------------------------------------------


async def due(link: Link, collections: WorkloadCollections, limit: int, again_after: timedelta) -> list[DueEntry]:
    """Entries to republish. Each is postponed, so that no other sweeper reports it too.

    Sweepers race for the oldest entries. A sweeper that lost the race reads again, so that no due entry is left.
    An entry that another system's worker has settled is repaired. An entry that this worker has just begun is not
    reported.
    """
    entries = collections.entries
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
        await repair(link, collections, settled)
    return [
        _due_entry(each) for each in ours if each["status"] not in _SETTLED and not _in_foreign_work(each, again_after)
    ]


def _in_foreign_work(document: Mapping[str, Any], lately: timedelta) -> bool:
    """Whether another system's worker, which writes no lease, seems to have the job in work."""
    if document["status"] != Status.PROCESSING.value or "leaseUntil" in document:
        return False
    changed = instant_of(document["updatedAt"])
    return changed is not None and changed > document["now"] - lately


async def unsettled(link: Link, entries: Collection, job_ids: Sequence[str]) -> list[DueEntry]:
    """The jobs among these that are not settled, and into which no other system has written."""
    wanted = {"_id": {"$in": list(job_ids)}, "status": {"$in": [*WAITING, Status.PROCESSING.value]}}
    found = await link.run(lambda: entries.find(wanted, _due_fields(link)).to_list())
    return [entry for entry in map(_due_entry, found) if not entry.foreign]


def _due_fields(link: Link) -> Document:
    names = ("status", "body", "priority", "attemptCount", "notBefore", "leaseUntil", "generation", "updatedAt")
    return {**dict.fromkeys(names, 1), "tried": {"$size": "$attemptHistory"}, "now": link.clock.now()}


def _due_entry(document: Mapping[str, Any]) -> DueEntry:
    """An unsettled entry. It is foreign if another system counted attempts that we do not know, or wrote text dates."""
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
    """Postpone the entries that are still due; return them in the order of ``job_ids``.

    An entry that a transaction holds is in work, whatever its status is. Its id is added to ``held``, and the next
    sweep tries again.
    """
    mark = new_mark()
    later = [{"$set": {"dueAt": link.clock.now(again_after), "sweepId": mark}}]
    reading = _due_fields(link)

    async def postpone(ids: Sequence[str]) -> None:
        await entries.update_many({"_id": {"$in": list(ids)}, "dueAt": {"$lte": now}}, later)

    if not await link.in_time(lambda: postpone(job_ids), _TOGETHER):
        # One entry in a dead client's transaction makes all others wait. So each entry is updated by itself.
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


# --- the queue's epoch ----------------------------------------------------------------------------------------


def _fact(collections: WorkloadCollections) -> str:
    """The name of the fact. Each workload has its own, because another process may run other workloads."""
    return f"queue:{collections.name}"


async def known_queues(link: Link, collections: Sequence[WorkloadCollections]) -> dict[str, str]:
    """The epoch of the queue that each workload saw last; a new workload has none."""
    facts = [_fact(each) for each in collections]
    found = await link.run(lambda: link.collection(FACTS).find({"_id": {"$in": facts}}).to_list())
    epochs = {each["_id"]: each["value"] for each in found}
    return {each.name: epochs[_fact(each)] for each in collections if _fact(each) in epochs}


async def detect_queue_reset(link: Link, collections: AllCollections, epoch: str) -> bool:
    """Compare the epoch and store it. Of many processes that see a new epoch, the first to store it returns True."""
    known = await known_queues(link, list(collections))
    won = [
        each.name
        for each in collections
        if known.get(each.name) != epoch and await _store_epoch(link, each, known.get(each.name), epoch)
    ]
    # Each workload has its own fact, and different processes may win them. The first workload decides for all.
    return next((each.name for each in collections if each.name in known), None) in won


async def _store_epoch(link: Link, collections: WorkloadCollections, known: str | None, epoch: str) -> bool:
    facts, name = link.collection(FACTS), _fact(collections)
    if known is None:
        await link.run(lambda: _insert_epoch(facts, name, epoch))
        return False
    # First the work, then the fact: if this process dies in between, the next process does both.
    everything_due: list[Document] = [{"$set": {"dueAt": link.clock.now()}}]
    # Without entries of another system: they have no body to publish.
    waiting = {"status": {"$in": list(WAITING)}, "fence": {"$exists": True}}
    await link.run(lambda: collections.entries.update_many(waiting, everything_due), seconds=LONG)
    gone = {"publishedTo": ELSEWHERE}
    await link.run(lambda: collections.letters.update_many(gone, {"$set": {"publishedTo": None}}), seconds=LONG)
    changed = await link.run(
        lambda: facts.update_one({"_id": name, "value": known}, {"$set": {"value": epoch}}),
    )
    return changed.modified_count == 1


async def _insert_epoch(facts: Collection, name: str, epoch: str) -> None:
    try:
        await facts.insert_one({"_id": name, "value": epoch})
    except DuplicateKeyError:  # another process was first: the next round compares
        return


# --- the end of retention -------------------------------------------------------------------------------------

_EXPIRES: Final = "expiresAt"


async def prune(link: Link, collections: AllCollections, record_collections: RecordCollections, limit: int) -> Pruned:
    """Delete what is past its retention: letters first, then entries without a letter (I12), then records.

    Of our entries, only terminal ones have an ``expiresAt``, and it is never before that of their last letter. Another
    system may leave ``expiresAt`` on an entry that it works on again.
    """
    now = await link.about_now()
    letters: dict[str, list[str]] = {}
    left = limit
    for each in collections:
        if left > 0 and (gone := await _delete(link, each.letters, _EXPIRES, now, left)):
            letters[each.name] = [letter_id_of(letter) for letter in gone]
            left -= len(gone)
    entries = 0
    for each in collections:
        if entries < limit:
            prunable = _settled_without_letters(each)
            entries += len(await _delete(link, each.entries, _EXPIRES, now, limit - entries, prunable))
    records = 0
    for record_collection in record_collections:
        if record_collection.kind.expires is not None and records < limit:
            records += len(
                await _delete(link, record_collection.collection, record_collection.kind.expires, now, limit - records)
            )
    return Pruned(entries, letters, records)


def _settled_without_letters(collections: WorkloadCollections) -> list[Document]:
    letter = {
        "from": collections.letters.name,
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
    filters: Sequence[Document] = (),
) -> list[Any]:
    """Delete the oldest expired documents; return their ids."""
    expired: Document = {expires: {"$lte": now}}
    pipeline = [{"$match": expired}, {"$sort": {expires: 1}}, *filters, {"$limit": limit}, {"$project": {"_id": 1}}]

    async def look() -> list[Document]:
        return await (await collection.aggregate(pipeline)).to_list()

    ids = [each["_id"] for each in await link.run(look, seconds=LONG)]
    if ids:
        # Check the time again: by now a key may be recorded again.
        await link.run(lambda: collection.delete_many({"_id": {"$in": ids}} | expired), seconds=LONG)
    return ids
