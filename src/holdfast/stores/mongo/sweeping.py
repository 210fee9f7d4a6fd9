"""Sweeping: due and overdue entries, the epoch of the queue, the end of retention, and the end of a person's data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pymongo import ASCENDING, UpdateMany, UpdateOne
from pymongo.errors import DuplicateKeyError

from holdfast.contracts.ledger import DueEntry, Pruned, Status

from .documents import new_mark, snapshot
from .foreign import ELSEWHERE, instant_of, letter_id_of
from .importing import repair
from .link import LONG, Collection, Document, Link, Session, aggregated
from .schema import FACTS, SETTLED, WAITING, StoreParts, WorkloadCollections

# Seconds that an update of many entries, and of one entry, may wait for documents that a transaction holds.
_TOGETHER: Final = 2.0
_ALONE: Final = 0.5

_MOST_REDACTED: Final = 500
"""Jobs in one transaction of ``redact``: a person may have very many jobs."""
_EXPIRES: Final = "expiresAt"


class Sweeping(StoreParts):
    """The part of the store that maintenance calls, and that deletes what nobody may keep."""

    async def due(self, workload: str, limit: int, *, again_after: timedelta) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.due`.

        Sweepers race for the oldest entries. A sweeper that lost the race reads again, so that no due entry is left.
        An entry that another system's worker has settled is repaired. An entry that this worker has just begun is not
        reported.
        """
        collections = self.collections.get(workload)
        if collections is None:
            return []
        ours: list[Document] = []
        held: list[str] = []
        while len(ours) < limit:
            now = await self.link.about_now()
            found = await _oldest(self.link, collections.entries, now, limit - len(ours), held)
            if not found:
                break
            ours += await _postpone(self.link, collections.entries, found, now, again_after, held)
        settled = [each["_id"] for each in ours if each["status"] in SETTLED]
        if settled:
            await repair(self.link, collections, settled)
        open_ = [each for each in ours if each["status"] not in SETTLED]
        return [_due_entry(each) for each in open_ if not _in_foreign_work(each, again_after)]

    async def unsettled(self, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.unsettled`."""
        collections = self.collections.get(workload)
        if collections is None:
            return []
        wanted = {"_id": {"$in": list(job_ids)}, "status": {"$in": [*WAITING, Status.PROCESSING.value]}}
        fields = _due_fields(self.link)
        found = await self.link.run(lambda: collections.entries.find(wanted, fields).to_list())
        return [entry for entry in map(_due_entry, found) if not entry.foreign]

    async def overdue(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.overdue`."""
        collections = self.collections.get(workload)
        if collections is None:
            return []
        past = {"deadline": {"$lte": await self.link.about_now()}, "status": {"$in": list(WAITING)}}
        found = await self.link.run(
            lambda: collections.entries.find(past, {"_id": 1}).sort("deadline", ASCENDING).limit(limit).to_list(),
        )
        return [each["_id"] for each in found]

    async def detect_queue_reset(self, epoch: str) -> bool:
        """See :meth:`holdfast.contracts.ports.Store.detect_queue_reset`.

        Of many processes that see a new epoch, the first to store it returns True.
        """
        known = await known_queues(self.link, list(self.collections))
        won = [
            each.name
            for each in self.collections
            if known.get(each.name) != epoch and await _store_epoch(self.link, each, known.get(each.name), epoch)
        ]
        # Each workload has its own fact, and different processes may win them. The first workload decides for all.
        return next((each.name for each in self.collections if each.name in known), None) in won

    async def prune(self, limit: int) -> Pruned:
        """See :meth:`holdfast.contracts.ports.Ledger.prune`.

        Letters come first, then entries without a letter (I12), then records. Of our entries, only terminal ones have
        an ``expiresAt``, and it is never before that of their last letter. Another system may leave ``expiresAt`` on an
        entry that it works on again.
        """
        now = await self.link.about_now()
        letters: dict[str, list[str]] = {}
        left = limit
        for each in self.collections:
            if left > 0 and (gone := await _delete(self.link, each.letters, _EXPIRES, now, left)):
                letters[each.name] = [letter_id_of(letter) for letter in gone]
                left -= len(gone)
        entries = 0
        for each in self.collections:
            if entries < limit:
                prunable = _settled_without_letters(each)
                entries += len(await _delete(self.link, each.entries, _EXPIRES, now, limit - entries, prunable))
        records = 0
        for kept in self.records:
            if kept.kind.expires is not None and records < limit:
                records += len(await _delete(self.link, kept.collection, kept.kind.expires, now, limit - records))
        return Pruned(entries, letters, records)

    async def redact(self, workload: str, bodies: Mapping[str, str]) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.redact`. The job ids are in the order of ``bodies``."""
        collections = self.collections.get(workload)
        if collections is None:
            return []
        job_ids = list(bodies)
        done: set[str] = set()
        for start in range(0, len(job_ids), _MOST_REDACTED):
            batch = {job_id: bodies[job_id] for job_id in job_ids[start : start + _MOST_REDACTED]}
            done |= await self.link.transaction(partial(_redact, collections=collections, bodies=batch))
        return [job_id for job_id in job_ids if job_id in done]


# --- due and overdue ------------------------------------------------------------------------------------------


def _in_foreign_work(document: Mapping[str, Any], lately: timedelta) -> bool:
    """Whether another system's worker, which writes no lease, seems to have the job in work."""
    if document["status"] != Status.PROCESSING.value or "leaseUntil" in document:
        return False
    changed = instant_of(document["updatedAt"])
    return changed is not None and changed > document["now"] - lately


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


def _settled_without_letters(collections: WorkloadCollections) -> list[Document]:
    letter = {
        "from": collections.letters.name,
        "localField": "idempotencyKey",
        "foreignField": "idempotencyKey",
        "pipeline": [{"$limit": 1}, {"$project": {"_id": 1}}],
        "as": "letters",
    }
    return [{"$match": {"status": {"$in": SETTLED}}}, {"$lookup": letter}, {"$match": {"letters": []}}]


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
    ids = [each["_id"] for each in await link.run(lambda: aggregated(collection, pipeline), seconds=LONG)]
    if ids:
        # Check the time again: by now a key may be recorded again.
        await link.run(lambda: collection.delete_many({"_id": {"$in": ids}} | expired), seconds=LONG)
    return ids


# --- a person's data -------------------------------------------------------------------------------------------


async def _redact(session: Session, *, collections: WorkloadCollections, bodies: Mapping[str, str]) -> set[str]:
    """One try at a batch. A replay meanwhile is a conflict, and the batch is tried again."""
    settled = {"_id": {"$in": list(bodies)}, "status": {"$in": SETTLED}}
    found = await collections.entries.find(settled, {"idempotencyKey": 1}, session=session).to_list()
    if not found:
        return set()
    entries = [UpdateOne({"_id": each["_id"]}, {"$set": {"body": bodies[each["_id"]]}}) for each in found]
    await collections.entries.bulk_write(entries, ordered=False, session=session)
    letters = []
    for each in found:
        body = bodies[each["_id"]]
        # By the key, because it has an index. A letter is never kept longer than the entry of its key.
        same_key = {"idempotencyKey": each["idempotencyKey"]}
        letters.append(UpdateMany(same_key, {"$set": {"body": body, "payloadSnapshot": snapshot(body)}}))
    await collections.letters.bulk_write(letters, ordered=False, session=session)
    return {each["_id"] for each in found}
