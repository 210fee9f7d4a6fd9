"""Recording: inserts that the unique indexes decide about (I2).

The batch is not a transaction: each insert stands for itself. A batch whose answer was lost is sent again, and finds
its own entries by their ``recordId``. Entries with effects take another way: see :mod:`.recording_effects`; and what
another system has recorded under the same keys is a case of its own: see :mod:`.taking_over`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.errors import BulkWriteError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs

from .entries import STANDING, compared, id_taken, new_document, new_mark
from .failures import DUPLICATE_KEY, write_errors
from .foreign import is_foreign
from .link import Collection, Document, Link, Session
from .recording_effects import record_with_effects
from .records import RecordCollections
from .taking_over import take_over
from .workload_collections import AllCollections, WorkloadCollections


async def record(
    link: Link,
    records: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    entries: Sequence[NewEntry],
) -> list[Recorded]:
    """Insert what is new and tell what stands; see the port.

    Those with effects come first, and with them all others of their workloads, which may have the same keys: should an
    effect be refused, nothing is recorded yet.
    """
    now = await link.about_now()
    with_effects = {entry.workload for entry in entries if entry.effects}
    together: list[int] = []
    by_workload: dict[str, list[int]] = {}
    for position, entry in enumerate(entries):
        if entry.workload in with_effects:
            together.append(position)
        else:
            by_workload.setdefault(entry.workload, []).append(position)
    answers: dict[int, Recorded] = {}
    if together:
        batch_with_effects = [entries[position] for position in together]
        told = await record_with_effects(link, records, record_collections, grace, now, batch_with_effects)
        answers.update(zip(together, told, strict=True))
    for workload, positions in by_workload.items():
        batch = _Batch(link, records.of(workload), now, grace)
        told = await batch.record([entries[position] for position in positions])
        answers.update(zip(positions, told, strict=True))
    return [answers[position] for position in range(len(entries))]


class _Batch:
    """Entries of one workload on their way into the ledger."""

    def __init__(self, link: Link, records: WorkloadCollections, now: datetime, grace: timedelta) -> None:
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
            foreign = [key for key, found in stands.items() if is_foreign(found)]
            if foreign:
                coming = [(entries[first[key]], f"{self._mark}.{first[key]}") for key in foreign]
                stands = {key: found for key, found in stands.items() if key not in foreign}
                stands |= await self._link.transaction(lambda session, coming=coming: self._take_over(session, coming))  # type: ignore[misc]
            for position, document in zip(round_, documents, strict=True):
                entry = entries[position]
                found = stands.get(entry.key)
                if found is None:  # another key has its job id
                    answers[position] = id_taken(entry, self._now)
                    continue
                standing[entry.key] = found
                ours = found.get("recordId") == document["recordId"]
                answers[position] = compared(entry, found, RecordedAs.NEW if ours else None)
            waiting = [position for position in waiting if position not in answers]
            for position in waiting:
                if (known := standing.get(entries[position].key)) is not None:
                    answers[position] = compared(entries[position], known)
            waiting = [position for position in waiting if position not in answers]
        return [answers[position] for position in range(len(entries))]

    def _document(self, entry: NewEntry, position: int) -> Document:
        return new_document(self._records.workload, entry, self._now, self._grace, f"{self._mark}.{position}")

    async def _take_over(self, session: Session, coming: Sequence[tuple[NewEntry, str]]) -> dict[str, Document]:
        return await take_over(session, self._records, coming, self._now, self._grace)

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
    cursor = collection.find({"idempotencyKey": {"$in": list(keys)}}, STANDING)
    return {each["idempotencyKey"]: each async for each in cursor}
