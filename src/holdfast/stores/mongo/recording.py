"""Recording: the unique indexes decide which entries are new (I2).

A batch without effects is not a transaction: each insert succeeds or fails alone. A batch whose reply was lost is sent
again, and finds its own entries by their ``recordId``.

Entries with effects are recorded in one transaction, each with its effects or not at all (I3). A duplicate key ends the
whole transaction. So the batch first reads the existing entries, and inserts only entries that seem new. The unique
indexes still decide: a key that another process recorded meanwhile is a conflict, and the batch is tried again.

A job may arrive whose key another system has recorded (:mod:`.foreign`). If that system has settled the job, its entry
is imported, and the job is a duplicate. If not, and if nobody else can be working on the job, a new entry of ours
replaces that system's entry in the same transaction. The new entry has the body of the arriving job and the attempts
that were made. Nobody else can be working on the job if the queue delivered it to us, or if the other system has not
begun it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pymongo.errors import BulkWriteError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs, Status
from holdfast.stores.folding import Write, writes_of

from .documents import new_document, new_mark
from .foreign import attempts_before, entry_in_our_shape, is_foreign, is_foreign_letter
from .importing import import_keys
from .link import Collection, Document, Session
from .schema import StoreParts, WorkloadCollections
from .server import DUPLICATE_KEY, write_errors


class Recording(StoreParts):
    """The part of the store that records entries."""

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """See :meth:`holdfast.contracts.ports.Ledger.record`.

        Entries with effects come first, together with all other entries of their workloads, which may have the same
        keys. So nothing is recorded when an effect is refused.
        """
        now = await self.link.about_now()
        with_effects = {entry.workload for entry in entries if entry.effects}
        together: list[int] = []
        by_workload: dict[str, list[int]] = {}
        for position, entry in enumerate(entries):
            if entry.workload in with_effects:
                together.append(position)
            else:
                by_workload.setdefault(entry.workload, []).append(position)
        answers: dict[int, Recorded] = {}
        mark = new_mark()
        if together:
            batch_with_effects = [entries[position] for position in together]
            recorded = await self.link.transaction(
                lambda session: _BatchWithEffects(self, now, mark, session).record(batch_with_effects),
            )
            answers.update(zip(together, recorded, strict=True))
        for workload, positions in by_workload.items():
            batch = _Batch(self, self.collections.of(workload), now, new_mark())
            recorded = await batch.record([entries[position] for position in positions])
            answers.update(zip(positions, recorded, strict=True))
        return [answers[position] for position in range(len(entries))]


_EXISTING: Final = dict.fromkeys(
    ("idempotencyKey", "fingerprint", "labels", "firstSeenAt", "status", "recordId", "fence"), 1
)
"""The fields of an existing entry that recording needs."""


def _compared(entry: NewEntry, found: Mapping[str, Any], recorded_as: RecordedAs | None = None) -> Recorded:
    """The answer for an entry whose key is in the ledger."""
    if recorded_as is None:
        # The entry of another system has no fingerprint: then the key alone decides.
        same = found.get("fingerprint", entry.fingerprint) == entry.fingerprint
        recorded_as = RecordedAs.DUPLICATE if same else RecordedAs.CONFLICT
    return Recorded(recorded_as, found["_id"], found["labels"], found["firstSeenAt"], Status(found["status"]))


def _id_taken(entry: NewEntry, now: datetime) -> Recorded:
    """The answer for an entry whose job id belongs to another key."""
    return Recorded(RecordedAs.CONFLICT, entry.job_id, {}, now, Status.RECEIVED)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Entries of one workload that are being recorded."""

    store: StoreParts
    collections: WorkloadCollections
    now: datetime
    mark: str

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
                coming = [(entries[first[key]], f"{self.mark}.{first[key]}") for key in foreign]
                by_key = {key: found for key, found in by_key.items() if key not in foreign}
                taking_over = partial(
                    take_over, collections=self.collections, coming=coming, now=self.now, grace=self.store.grace
                )
                by_key |= await self.store.link.transaction(taking_over)
            for position, document in zip(round_, documents, strict=True):
                entry = entries[position]
                found = by_key.get(entry.key)
                if found is None:  # another key has this job id
                    answers[position] = _id_taken(entry, self.now)
                    continue
                existing[entry.key] = found
                ours = found.get("recordId") == document["recordId"]
                answers[position] = _compared(entry, found, RecordedAs.NEW if ours else None)
            waiting = [position for position in waiting if position not in answers]
            for position in waiting:
                if (known := existing.get(entries[position].key)) is not None:
                    answers[position] = _compared(entries[position], known)
            waiting = [position for position in waiting if position not in answers]
        return [answers[position] for position in range(len(entries))]

    def _document(self, entry: NewEntry, position: int) -> Document:
        return new_document(self.collections.workload, entry, self.now, self.store.grace, f"{self.mark}.{position}")

    async def _insert(self, documents: Sequence[Document]) -> dict[str, Mapping[str, Any]]:
        """Insert; return the entry of each key. A key is missing in the answer when another key has its job id."""
        collection = self.collections.entries
        by_key: dict[str, Mapping[str, Any]] = {}
        waiting = list(documents)
        # Twice: the entry that refused an insert may be pruned before we can read it.
        for _ in range(2):
            crash_point("store.before_commit")
            refused = await self.store.link.run(partial(_insert_new, collection, waiting))
            crash_point("store.committed")
            by_key |= {each["idempotencyKey"]: each for each in waiting}
            for each in refused:
                del by_key[each["idempotencyKey"]]
            if not refused:
                break
            keys = [each["idempotencyKey"] for each in refused]
            found = await self.store.link.run(partial(_look_up, collection, keys))
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
    cursor = collection.find({"idempotencyKey": {"$in": list(keys)}}, _EXISTING)
    return {each["idempotencyKey"]: each async for each in cursor}


# --- with effects ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Ledger:
    """The entries of one workload with the keys and ids of a batch, and the new entries of the batch."""

    collections: WorkloadCollections
    by_key: dict[str, Mapping[str, Any]]
    job_ids: set[str]
    new: list[Document] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _BatchWithEffects:
    """One try at a batch, inside its transaction."""

    store: StoreParts
    now: datetime
    mark: str
    session: Session

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """Record the entries in order. A second entry with the same key or job id is compared with the first."""
        ledgers = await self._read_existing(entries)
        taken = await self._take_over(entries, ledgers)
        effects: list[tuple[str, list[Write]]] = []
        answers = []
        for position, entry in enumerate(entries):
            ledger = ledgers[entry.workload]
            found, mark = ledger.by_key.get(entry.key), f"{self.mark}.{position}"
            if found is not None:
                ours = found.get("recordId") == mark
                if ours and entry.key in taken:
                    effects.append((entry.job_id, writes_of(entry.job_id, entry.effects)))
                answers.append(_compared(entry, found, RecordedAs.NEW if ours else None))
            elif entry.job_id in ledger.job_ids:
                answers.append(_id_taken(entry, self.now))
            else:
                document = new_document(ledger.collections.workload, entry, self.now, self.store.grace, mark)
                ledger.by_key[entry.key] = document
                ledger.job_ids.add(entry.job_id)
                ledger.new.append(document)
                effects.append((entry.job_id, writes_of(entry.job_id, entry.effects)))
                answers.append(_compared(entry, document, RecordedAs.NEW))
        for ledger in ledgers.values():
            if ledger.new:
                await ledger.collections.entries.insert_many(ledger.new, session=self.session)
        await self.store.records.apply(self.session, self.now, effects)
        return answers

    async def _take_over(self, entries: Sequence[NewEntry], ledgers: Mapping[str, _Ledger]) -> set[str]:
        """Take over another system's entries, where that is allowed; return the keys that were another system's."""
        keys: set[str] = set()
        for workload, ledger in ledgers.items():
            foreign = {key for key, found in ledger.by_key.items() if is_foreign(found)}
            coming = [
                (entry, f"{self.mark}.{position}")
                for position, entry in reversed(list(enumerate(entries)))  # the first entry of a key counts
                if entry.workload == workload and entry.key in foreign
            ]
            if coming:
                for key in foreign:
                    del ledger.by_key[key]
                taken = await take_over(self.session, ledger.collections, coming, self.now, self.store.grace)
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
            collections = self.store.collections.of(workload)
            same_key = {"idempotencyKey": {"$in": [entry.key for entry in batch]}}
            same_id = {"_id": {"$in": [entry.job_id for entry in batch]}}
            cursor = collections.entries.find({"$or": [same_key, same_id]}, _EXISTING, session=self.session)
            found = await cursor.to_list()
            ledgers[workload] = _Ledger(
                collections, {each["idempotencyKey"]: each for each in found}, {each["_id"] for each in found}
            )
        return ledgers


# --- taking over what another system has recorded -------------------------------------------------------------


async def take_over(
    session: Session,
    collections: WorkloadCollections,
    coming: Sequence[tuple[NewEntry, str]],
    now: datetime,
    grace: timedelta,
) -> dict[str, Document]:
    """Take over what may be taken; return the entries of these keys. A new entry of ours has the mark of its job.

    A key is missing in the answer when another key has its job id.
    """
    by_key = {entry.key: (entry, mark) for entry, mark in coming}
    found = await _found(session, collections, list(by_key))
    settled = [key for key, each in found.items() if is_foreign(each) and _status(collections, each).terminal]
    if settled:
        await import_keys(session, collections=collections, keys=settled)
        found |= await _found(session, collections, settled)
    free = [key for key in by_key if key not in found or _may_be_taken(collections, found[key], by_key[key][0])]
    last = await _last_generations(session, collections, free)
    ids = await _taken_ids(session, collections, [by_key[key][0].job_id for key in free])
    for key in free:
        (entry, mark), before = by_key[key], found.pop(key, None)
        if entry.job_id in ids:
            continue
        document = new_document(collections.workload, entry, now, grace, mark) | {"generation": last.get(key, 0) + 1}
        if before is not None:
            document |= _progress(collections, before)
            if not entry.delivered:  # the other system has accepted the job, so for its sender it is a duplicate
                document["recordId"] += ".known"
            await collections.entries.delete_one({"_id": before["_id"]}, session=session)
        await collections.entries.insert_one(document, session=session)
        ids.add(entry.job_id)
        found[key] = document
    return {
        key: entry_in_our_shape(collections.workload, each) if is_foreign(each) else each for key, each in found.items()
    }


def _progress(collections: WorkloadCollections, found: Mapping[str, Any]) -> Document:
    """The attempts and errors that the other system has written so far."""
    before = entry_in_our_shape(collections.workload, found)
    attempts = attempts_before(before)
    return {
        "status": (Status.FAILED if attempts else Status.RECEIVED).value,
        "attemptHistory": attempts,
        "attemptCount": len(attempts),
        **{name: before[name] for name in ("firstSeenAt", "lastErrorCode", "lastErrorMessage")},
    }


def _may_be_taken(collections: WorkloadCollections, found: Mapping[str, Any], entry: NewEntry) -> bool:
    return is_foreign(found) and (entry.delivered or _status(collections, found) is Status.RECEIVED)


def _status(collections: WorkloadCollections, found: Mapping[str, Any]) -> Status:
    return Status(entry_in_our_shape(collections.workload, found)["status"])


async def _found(session: Session, collections: WorkloadCollections, keys: Sequence[str]) -> dict[str, Document]:
    found = await collections.entries.find({"idempotencyKey": {"$in": list(keys)}}, session=session).to_list()
    return {each["idempotencyKey"]: each for each in found}


async def _taken_ids(session: Session, collections: WorkloadCollections, job_ids: Sequence[str]) -> set[str]:
    found = await collections.entries.find({"_id": {"$in": list(job_ids)}}, {"_id": 1}, session=session).to_list()
    return {each["_id"] for each in found}


async def _last_generations(session: Session, collections: WorkloadCollections, keys: Sequence[str]) -> dict[str, int]:
    """The last generation of the dead letters of each key: the next letter needs another generation (I8)."""
    fields = {"idempotencyKey": 1, "generation": 1}
    letters = await collections.letters.find({"idempotencyKey": {"$in": list(keys)}}, fields, session=session).to_list()
    last: dict[str, int] = {}
    for each in letters:
        if not is_foreign_letter(each):
            last[each["idempotencyKey"]] = max(last.get(each["idempotencyKey"], 0), each["generation"])
    for each in letters:
        if is_foreign_letter(each):  # its import will give it the next free generation
            last[each["idempotencyKey"]] = last.get(each["idempotencyKey"], 0) + 1
    return last
