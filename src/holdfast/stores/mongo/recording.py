"""Recording: the unique indexes decide which entries are new (I2).

A batch is not a transaction: each insert succeeds or fails alone. A batch whose reply was lost is sent again, and finds
its own entries by their ``recordId``. For entries with effects see :mod:`.recording_effects`; for keys that another
system has recorded see :mod:`.taking_over`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo.errors import BulkWriteError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs

from .entries import EXISTING, compared, id_taken, new_document, new_mark
from .failures import DUPLICATE_KEY, write_errors
from .foreign import is_foreign
from .link import Collection, Document, Link, Session
from .recording_effects import record_with_effects
from .records import RecordCollections
from .taking_over import take_over
from .workload_collections import AllCollections, WorkloadCollections


async def record(
    link: Link,
    collections: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    entries: Sequence[NewEntry],
) -> list[Recorded]:
    """Insert the new entries; answer for each entry; see the port.

    Entries with effects come first, together with all other entries of their workloads, which may have the same keys.
    So nothing is recorded when an effect is refused.
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
        recorded = await record_with_effects(link, collections, record_collections, grace, now, batch_with_effects)
        answers.update(zip(together, recorded, strict=True))
    for workload, positions in by_workload.items():
        batch = _Batch(link, collections.of(workload), now, grace)
        recorded = await batch.record([entries[position] for position in positions])
        answers.update(zip(positions, recorded, strict=True))
    return [answers[position] for position in range(len(entries))]


class _Batch:
    """Entries of one workload that are being recorded."""

    def __init__(self, link: Link, collections: WorkloadCollections, now: datetime, grace: timedelta) -> None:
        self._link = link
        self._collections = collections
        self._now = now
        self._grace = grace
        self._mark = new_mark()

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Record the entries. Of equal keys, the first is inserted, and the others are compared with it."""
        answers: dict[int, Recorded] = {}
        existing: dict[str, Mapping[str, Any]] = {}
        waiting = list(range(len(entries)))
        while waiting:
            first = {entries[position].key: position for position in reversed(waiting)}
            round_ = sorted(first.values())
            documents = [self._document(entries[position], position) for position in round_]
            by_key = await self._insert(documents)
            foreign = [key for key, found in by_key.items() if is_foreign(found)]
            if foreign:
                coming = [(entries[first[key]], f"{self._mark}.{first[key]}") for key in foreign]
                by_key = {key: found for key, found in by_key.items() if key not in foreign}
                by_key |= await self._link.transaction(lambda session, coming=coming: self._take_over(session, coming))  # type: ignore[misc]
            for position, document in zip(round_, documents, strict=True):
                entry = entries[position]
                found = by_key.get(entry.key)
                if found is None:  # another key has this job id
                    answers[position] = id_taken(entry, self._now)
                    continue
                existing[entry.key] = found
                ours = found.get("recordId") == document["recordId"]
                answers[position] = compared(entry, found, RecordedAs.NEW if ours else None)
            waiting = [position for position in waiting if position not in answers]
            for position in waiting:
                if (known := existing.get(entries[position].key)) is not None:
                    answers[position] = compared(entries[position], known)
            waiting = [position for position in waiting if position not in answers]
        return [answers[position] for position in range(len(entries))]

    def _document(self, entry: NewEntry, position: int) -> Document:
        return new_document(self._collections.workload, entry, self._now, self._grace, f"{self._mark}.{position}")

    async def _take_over(self, session: Session, coming: Sequence[tuple[NewEntry, str]]) -> dict[str, Document]:
        return await take_over(session, self._collections, coming, self._now, self._grace)

    async def _insert(self, documents: Sequence[Document]) -> dict[str, Mapping[str, Any]]:
        """Insert; return the entry of each key. A key is missing in the answer when another key has its job id."""
        collection = self._collections.entries
        by_key: dict[str, Mapping[str, Any]] = {}
        waiting = list(documents)
        # Twice: the entry that refused an insert may be pruned before we can read it.
        for _ in range(2):
            crash_point("store.before_commit")
            refused = await self._link.run(lambda waiting=waiting: _insert_new(collection, waiting))  # type: ignore[misc]
            crash_point("store.committed")
            by_key |= {each["idempotencyKey"]: each for each in waiting}
            for each in refused:
                del by_key[each["idempotencyKey"]]
            if not refused:
                break
            keys = [each["idempotencyKey"] for each in refused]
            found = await self._link.run(lambda keys=keys: _look_up(collection, keys))  # type: ignore[misc]
            by_key |= found
            waiting = [each for each in refused if each["idempotencyKey"] not in found]
            if not waiting:
                break
        return by_key


async def _insert_new(collection: Collection, documents: Sequence[Document]) -> list[Document]:
    """Insert; return the documents that a unique index refused.

    Before the server refuses a document, it waits until a majority has the existing entry. So the existing entry can be
    promised to the sender.
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
    cursor = collection.find({"idempotencyKey": {"$in": list(keys)}}, EXISTING)
    return {each["idempotencyKey"]: each async for each in cursor}
