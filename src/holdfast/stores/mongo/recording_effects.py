"""Recording entries with their effects: all of them in one transaction, each with its effects or not at all (I2, I3).

A duplicate key ends the whole transaction. So the batch first reads the existing entries, and inserts only entries that
seem new. The unique indexes still decide: a key that another process recorded meanwhile is a conflict, and the batch is
tried again. A batch whose commit had no reply finds its own entries by their ``recordId``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs
from holdfast.stores.folding import Write, writes_of

from .entries import EXISTING, compared, id_taken, new_document, new_mark
from .foreign import is_foreign
from .link import Document, Link, Session
from .records import RecordCollections
from .taking_over import take_over
from .workload_collections import AllCollections, WorkloadCollections


async def record_with_effects(  # noqa: PLR0913, PLR0917 - what recording needs
    link: Link,
    collections: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    now: datetime,
    entries: Sequence[NewEntry],
) -> list[Recorded]:
    """Insert the new entries, apply their effects, and answer for each entry; see the port."""
    mark = new_mark()
    return await link.transaction(
        lambda session: _Batch(collections, record_collections, grace, now, mark, session).record(entries),
    )


@dataclass(slots=True)
class _Ledger:
    """The entries of one workload with the keys and ids of a batch, and the new entries of the batch."""

    collections: WorkloadCollections
    by_key: dict[str, Mapping[str, Any]]
    job_ids: set[str]
    new: list[Document] = field(default_factory=list)


class _Batch:
    """One try at a batch, inside its transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - what recording needs
        self,
        collections: AllCollections,
        record_collections: RecordCollections,
        grace: timedelta,
        now: datetime,
        mark: str,
        session: Session,
    ) -> None:
        self._collections = collections
        self._record_collections = record_collections
        self._grace = grace
        self._now = now
        self._mark = mark
        self._session = session

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Record the entries in order. A second entry with the same key or job id is compared with the first."""
        ledgers = await self._read_existing(entries)
        taken = await self._take_over(entries, ledgers)
        effects: list[tuple[str, list[Write]]] = []
        answers = []
        for position, entry in enumerate(entries):
            ledger = ledgers[entry.workload]
            found, mark = ledger.by_key.get(entry.key), f"{self._mark}.{position}"
            if found is not None:
                ours = found.get("recordId") == mark
                if ours and entry.key in taken:
                    effects.append((entry.job_id, writes_of(entry.job_id, entry.effects)))
                answers.append(compared(entry, found, RecordedAs.NEW if ours else None))
            elif entry.job_id in ledger.job_ids:
                answers.append(id_taken(entry, self._now))
            else:
                document = new_document(ledger.collections.workload, entry, self._now, self._grace, mark)
                ledger.by_key[entry.key] = document
                ledger.job_ids.add(entry.job_id)
                ledger.new.append(document)
                effects.append((entry.job_id, writes_of(entry.job_id, entry.effects)))
                answers.append(compared(entry, document, RecordedAs.NEW))
        for ledger in ledgers.values():
            if ledger.new:
                await ledger.collections.entries.insert_many(ledger.new, session=self._session)
        await self._record_collections.apply(self._session, self._now, effects)
        return answers

    async def _take_over(self, entries: Sequence[NewEntry], ledgers: Mapping[str, _Ledger]) -> set[str]:
        """Take over another system's entries, where that is allowed; return the keys that were another system's."""
        keys: set[str] = set()
        for workload, ledger in ledgers.items():
            foreign = {key for key, found in ledger.by_key.items() if is_foreign(found)}
            coming = [
                (entry, f"{self._mark}.{position}")
                for position, entry in reversed(list(enumerate(entries)))  # the first entry of a key counts
                if entry.workload == workload and entry.key in foreign
            ]
            if coming:
                for key in foreign:
                    del ledger.by_key[key]
                taken = await take_over(self._session, ledger.collections, coming, self._now, self._grace)
                ledger.by_key |= taken
                ledger.job_ids |= {each["_id"] for each in taken.values()}
                keys |= foreign
        return keys

    async def _read_existing(self, entries: Sequence[NewEntry]) -> dict[str, _Ledger]:
        by_workload: dict[str, list[NewEntry]] = {}
        for entry in entries:
            by_workload.setdefault(entry.workload, []).append(entry)
        ledgers = {}
        for workload, batch in by_workload.items():
            collections = self._collections.of(workload)
            same_key = {"idempotencyKey": {"$in": [entry.key for entry in batch]}}
            same_id = {"_id": {"$in": [entry.job_id for entry in batch]}}
            cursor = collections.entries.find({"$or": [same_key, same_id]}, EXISTING, session=self._session)
            found = await cursor.to_list()
            ledgers[workload] = _Ledger(
                collections, {each["idempotencyKey"]: each for each in found}, {each["_id"] for each in found}
            )
        return ledgers
