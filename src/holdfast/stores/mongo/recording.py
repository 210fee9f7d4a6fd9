"""Recording: inserts that the unique indexes decide about (I2).

The batch is not a transaction: each insert stands for itself. A batch whose answer was lost is sent again, and finds
its own entries by their ``recordId``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pymongo.errors import BulkWriteError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.ledger import NewEntry, Recorded, RecordVerdict, Status

from .entries import new_document, new_mark
from .failures import DUPLICATE_KEY, write_errors
from .link import Collection, Document, Link
from .records import AllRecords, Records

_STANDING: Final = {"idempotencyKey": 1, "fingerprint": 1, "labels": 1, "firstSeenAt": 1, "status": 1, "recordId": 1}


async def record(link: Link, records: AllRecords, grace: timedelta, entries: Sequence[NewEntry]) -> list[Recorded]:
    """Insert what is new and tell what stands; see the port."""
    now = await link.about_now()
    by_workload: dict[str, list[int]] = {}
    for position, entry in enumerate(entries):
        by_workload.setdefault(entry.workload, []).append(position)
    answers: dict[int, Recorded] = {}
    for workload, positions in by_workload.items():
        batch = _Batch(link, records.of(workload), now, grace)
        told = await batch.record([entries[position] for position in positions])
        answers.update(zip(positions, told, strict=True))
    return [answers[position] for position in range(len(entries))]


class _Batch:
    """Entries of one workload on their way into the ledger."""

    def __init__(self, link: Link, records: Records, now: datetime, grace: timedelta) -> None:
        self._link = link
        self._records = records
        self._now = now
        self._grace = grace
        self._mark = new_mark()

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Equal keys count in their order: one of them is sent at a time, and the others are held against it."""
        answers: dict[int, Recorded] = {}
        standing: dict[str, Mapping[str, Any]] = {}
        waiting = list(range(len(entries)))
        while waiting:
            first = {entries[position].key: position for position in reversed(waiting)}
            round_ = sorted(first.values())
            documents = [self._document(entries[position], position) for position in round_]
            stands = await self._insert(documents)
            for position, document in zip(round_, documents, strict=True):
                entry = entries[position]
                found = stands.get(entry.key)
                if found is None:  # another key has its job id
                    answers[position] = Recorded(RecordVerdict.CONFLICT, entry.job_id, {}, self._now, Status.RECEIVED)
                    continue
                standing[entry.key] = found
                ours = found["recordId"] == document["recordId"]
                answers[position] = _compared(entry, found, RecordVerdict.NEW if ours else None)
            waiting = [position for position in waiting if position not in answers]
            for position in waiting:
                if (known := standing.get(entries[position].key)) is not None:
                    answers[position] = _compared(entries[position], known)
            waiting = [position for position in waiting if position not in answers]
        return [answers[position] for position in range(len(entries))]

    def _document(self, entry: NewEntry, position: int) -> Document:
        return new_document(self._records.workload, entry, self._now, self._grace, f"{self._mark}.{position}")

    async def _insert(self, documents: Sequence[Document]) -> dict[str, Mapping[str, Any]]:
        """Insert; return what stands under each key. A key that is missing there met another key's job id."""
        collection = self._records.entries
        stands: dict[str, Mapping[str, Any]] = {}
        waiting = list(documents)
        # Twice: what stood in the way may have been pruned before we could look at it.
        for _ in range(2):
            crash_point("store.before_commit")
            met = await self._link.run(lambda waiting=waiting: _insert_new(collection, waiting))  # type: ignore[misc]
            crash_point("store.committed")
            stands |= {each["idempotencyKey"]: each for each in waiting}
            for each in met:
                del stands[each["idempotencyKey"]]
            if not met:
                break
            keys = [each["idempotencyKey"] for each in met]
            found = await self._link.run(lambda keys=keys: _look_up(collection, keys))  # type: ignore[misc]
            stands |= found
            waiting = [each for each in met if each["idempotencyKey"] not in found]
            if not waiting:
                break
        return stands


async def _insert_new(collection: Collection, documents: Sequence[Document]) -> list[Document]:
    """Insert; return the documents that met a unique index.

    Even for those the server has waited until a majority has what they met, so it can be promised to the sender.
    """
    try:
        await collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        refused = write_errors(error)
        if error.details.get("writeConcernErrors") or any(each["code"] != DUPLICATE_KEY for each in refused):
            raise
        return [documents[each["index"]] for each in refused]
    return []


async def _look_up(collection: Collection, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    cursor = collection.find({"idempotencyKey": {"$in": list(keys)}}, _STANDING)
    return {each["idempotencyKey"]: each async for each in cursor}


def _compared(entry: NewEntry, found: Mapping[str, Any], verdict: RecordVerdict | None = None) -> Recorded:
    """The answer about an entry whose key stands."""
    if verdict is None:
        same = found["fingerprint"] == entry.fingerprint
        verdict = RecordVerdict.DUPLICATE if same else RecordVerdict.CONFLICT
    return Recorded(verdict, found["_id"], found["labels"], found["firstSeenAt"], Status(found["status"]))
