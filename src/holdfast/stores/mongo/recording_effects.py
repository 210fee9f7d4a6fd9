"""Recording entries with their effects: all of them in one transaction, each with its effects or not at all (I2, I3).

A duplicate key ends a transaction, and its neighbours with it. So the batch looks first at what stands, and inserts
only what seems new; the unique indexes still decide: a key that somebody else took in the meantime is a conflict, and
the batch is tried again. A batch whose commit was not answered finds its own entries by their ``recordId``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs
from holdfast.stores.folding import Write, writes_of

from .entries import STANDING, compared, id_taken, new_document, new_mark
from .foreign import is_foreign
from .link import Document, Link, Session
from .records import RecordCollections
from .taking_over import take_over
from .workload_collections import AllCollections, WorkloadCollections


async def record_with_effects(  # noqa: PLR0913, PLR0917 - what recording needs
    link: Link,
    records: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    now: datetime,
    entries: Sequence[NewEntry],
) -> list[Recorded]:
    """Insert what is new, apply its effects, and tell what stands; see the port."""
    mark = new_mark()
    return await link.transaction(
        lambda session: _Batch(records, record_collections, grace, now, mark, session).record(entries),
    )


@dataclass(slots=True)
class _Ledger:
    """What stands in the ledger of one workload under the keys and ids of a batch, and what comes to it."""

    records: WorkloadCollections
    by_key: dict[str, Mapping[str, Any]]
    job_ids: set[str]
    new: list[Document] = field(default_factory=list)


class _Batch:
    """One try at a batch, inside its transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - what recording needs
        self,
        records: AllCollections,
        record_collections: RecordCollections,
        grace: timedelta,
        now: datetime,
        mark: str,
        session: Session,
    ) -> None:
        self._records = records
        self._record_collections = record_collections
        self._grace = grace
        self._now = now
        self._mark = mark
        self._session = session

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Entries count in their order: a second one of a key, or of a job id, is held against the first."""
        ledgers = await self._standing(entries)
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
                document = new_document(ledger.records.workload, entry, self._now, self._grace, mark)
                ledger.by_key[entry.key] = document
                ledger.job_ids.add(entry.job_id)
                ledger.new.append(document)
                effects.append((entry.job_id, writes_of(entry.job_id, entry.effects)))
                answers.append(compared(entry, document, RecordedAs.NEW))
        for ledger in ledgers.values():
            if ledger.new:
                await ledger.records.entries.insert_many(ledger.new, session=self._session)
        await self._record_collections.apply(self._session, self._now, effects)
        return answers

    async def _take_over(self, entries: Sequence[NewEntry], ledgers: Mapping[str, _Ledger]) -> set[str]:
        """Make another system's records ours, where that may be; return the keys that were another system's."""
        keys: set[str] = set()
        for workload, ledger in ledgers.items():
            foreign = {key for key, found in ledger.by_key.items() if is_foreign(found)}
            coming = [
                (entry, f"{self._mark}.{position}")
                for position, entry in reversed(list(enumerate(entries)))  # the first of a key counts
                if entry.workload == workload and entry.key in foreign
            ]
            if coming:
                for key in foreign:
                    del ledger.by_key[key]
                stands = await take_over(self._session, ledger.records, coming, self._now, self._grace)
                ledger.by_key |= stands
                ledger.job_ids |= {each["_id"] for each in stands.values()}
                keys |= foreign
        return keys

    async def _standing(self, entries: Sequence[NewEntry]) -> dict[str, _Ledger]:
        by_workload: dict[str, list[NewEntry]] = {}
        for entry in entries:
            by_workload.setdefault(entry.workload, []).append(entry)
        ledgers = {}
        for workload, batch in by_workload.items():
            records = self._records.of(workload)
            same_key = {"idempotencyKey": {"$in": [entry.key for entry in batch]}}
            same_id = {"_id": {"$in": [entry.job_id for entry in batch]}}
            cursor = records.entries.find({"$or": [same_key, same_id]}, STANDING, session=self._session)
            found = await cursor.to_list()
            ledgers[workload] = _Ledger(
                records, {each["idempotencyKey"]: each for each in found}, {each["_id"] for each in found}
            )
        return ledgers
