"""Importing: another system's entries and dead letters become ours, while that system may go on writing.

The entry and the dead letters of one key are imported in one transaction. If the other system writes to them meanwhile,
that is a conflict, and the transaction is tried again. The other system finds its documents by their keys, before and
after. A second import does nothing. An import that stops half way leaves the rest to the next import.

An entry that is not settled is not imported: it has no body, so Holdfast could not run it. When the queue delivers its
job to a worker of ours, :mod:`.recording` takes the entry over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import count, islice
from typing import Any, Final

from bson.objectid import ObjectId
from pymongo import ASCENDING, DeleteOne, InsertOne, UpdateOne

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.entries import job_id_for
from holdfast.contracts.errors import StoreContended
from holdfast.contracts.ledger import Status
from holdfast.contracts.transitions import WORKED_ELSEWHERE, MoveToDeadLetters
from holdfast.contracts.workload import Workload

from .documents import new_letter
from .foreign import (
    created_at,
    entry_in_our_shape,
    entry_of_letter,
    foreign_ids,
    instant_of,
    is_foreign,
    is_foreign_letter,
    letter_in_our_shape,
    readable_entry,
    repaired_fields,
)
from .link import Collection, Document, Link, Session
from .records import RecordCollection, RecordCollections
from .schema import SETTLED, AllCollections, WorkloadCollections

_BATCH: Final = 100
_CONTENTION: Final = 1.0
_A_LONG_LOOK: Final = 3600.0
_MOST_COUNTED: Final = 1000
_FIRST: Final = ObjectId("0" * 24)
_DEAD: Final = Status.DEAD_LETTERED.value

_ENTRIES: Final = {"status": {"$in": SETTLED}, "fence": {"$exists": False}, "idempotencyKey": {"$type": "string"}}
_UNSETTLED: Final = {"status": {"$nin": SETTLED}, "fence": {"$exists": False}}
_LETTERS: Final = {"generation": {"$exists": False}, "idempotencyKey": {"$type": "string"}}
_OVERWRITTEN: Final = ({"dueAt": {"$exists": True}}, {"expiresAt": {"$type": "string"}})
"""The signs that another system's worker settled an entry of ours: our own settling removes ``dueAt``."""


async def import_all(link: Link, collections: AllCollections, record_collections: RecordCollections) -> list[str]:
    """Import everything; return what was done, one sentence each."""
    done = []
    for each in collections:
        for collection, which in ((each.letters, _LETTERS), (each.entries, _ENTRIES)):
            imported = 0
            async for found in _pages(link, collection, which, {"idempotencyKey": 1}):
                imported += len(found)
                await _import(link, each, found)
            if imported:
                done.append(f"Brought over {imported} records of another system in {collection.name}.")
        if repaired := await _repair_all(link, each):
            done.append(f"Repaired {repaired} entries of {each.entries.name} that another system has settled.")
    changed = {
        record_collection.collection.name: await _import_instants(link, record_collection)
        for record_collection in record_collections
    }
    return done + [
        f"Turned text into dates in {number} records of {name}." for name, number in changed.items() if number
    ]


async def import_letters(link: Link, collections: AllCollections, letter_ids: Sequence[str]) -> None:
    """Import the foreign letters with these ids, before a person decides about them."""
    identities = foreign_ids(letter_ids)
    if not identities:
        return
    for each in collections:
        wanted = {"_id": {"$in": identities}} | _LETTERS
        found = await link.run(partial(_read, each.letters, wanted, {"idempotencyKey": 1}))
        if found:
            await _import(link, each, found)


async def _import(link: Link, collections: WorkloadCollections, found: Sequence[Document]) -> None:
    keys = list({document["idempotencyKey"] for document in found})
    try:
        await link.transaction(partial(import_keys, collections=collections, keys=keys), contention=_CONTENTION)
    except StoreContended:
        # The other system is writing one of the keys, or a dead client holds it. So each key is imported by itself.
        for key in keys:
            await link.transaction(partial(import_keys, collections=collections, keys=[key]))


async def foreign_collections(link: Link, collections: AllCollections) -> list[str]:
    """The collections that have documents of another system."""
    # Foreign ids are ObjectIds, and ours are text. So the index on _id finds them.
    foreign = {"_id": {"$gt": _FIRST}}
    return [
        collection.name
        for each in collections
        for collection in (each.entries, each.letters)
        if await link.run(partial(collection.find_one, foreign, {"_id": 1})) is not None
    ]


async def remaining(link: Link, collections: AllCollections) -> list[str]:
    """The documents of another system that are not imported yet, and what happens with them; one sentence each."""
    sentences = []
    by_migrate = "`holdfast migrate` brings them over."
    by_queue = "Each is taken over when the queue delivers its job to a worker of Holdfast."
    for each in collections:
        for collection, which, what, becomes in (
            (each.entries, _ENTRIES, "settled records", by_migrate),
            (each.letters, _LETTERS, "dead letters", by_migrate),
            (each.entries, _UNSETTLED, "unsettled records", by_queue),
        ):
            wanted = {"_id": {"$gt": _FIRST}} | which
            number = await link.run(
                partial(collection.count_documents, wanted, limit=_MOST_COUNTED), seconds=_A_LONG_LOOK
            )
            if number:
                shown = f"{number}" if number < _MOST_COUNTED else f"at least {number}"
                sentences.append(f"{collection.name} has {shown} {what} of another system. {becomes}")
    return sentences


# --- the entry and the letters of a key -----------------------------------------------------------------------


async def import_keys(session: Session, *, collections: WorkloadCollections, keys: Sequence[str]) -> None:
    """Import the settled entries and all dead letters of these keys."""
    same_key = {"idempotencyKey": {"$in": list(keys)}}
    entries = {each["idempotencyKey"]: each for each in await _read(collections.entries, same_key, session=session)}
    letters: dict[str, list[Document]] = {}
    for each in await _read(collections.letters, same_key, session=session):
        letters.setdefault(each["idempotencyKey"], []).append(each)
    ids = {key: _new_ids(key) for key in keys if is_foreign(entries.get(key, {}))}
    wanted = {"_id": {"$in": [job_id for pair in ids.values() for job_id in pair]}}
    taken = {each["_id"] for each in await _read(collections.entries, wanted, {"_id": 1}, session)}
    entry_writes: list[Any] = []
    letter_writes: list[Any] = []
    for key in keys:
        found = entries.get(key)
        if found is None or is_foreign(found):
            job_id = next(each for each in ids[key] if each not in taken)
            taken.add(job_id)
        else:
            job_id = found["_id"]
        key_import = _KeyImport(collections, found, letters.get(key, []), job_id)
        entry_writes += key_import.entry_writes()
        letter_writes += key_import.letter_writes()
    for collection, writes in ((collections.entries, entry_writes), (collections.letters, letter_writes)):
        if writes:
            await collection.bulk_write(writes, session=session)


def _new_ids(key: str) -> tuple[str, str]:
    """The id for the entry of a key, and a second id in case another key's entry has the first."""
    return job_id_for(key), f"elsewhere-{sha256(key.encode()).hexdigest()[:32]}"


class _KeyImport:
    """The import of one key's entry and dead letters.

    Each foreign letter gets a generation that no other letter of its key has (I8). The last letter of a dead-lettered
    entry has the entry's own generation. So this letter can be replayed, and no earlier letter can.
    """

    def __init__(
        self,
        collections: WorkloadCollections,
        found: Document | None,
        letters: Sequence[Mapping[str, Any]],
        job_id: str,
    ) -> None:
        workload = collections.workload
        self._workload = workload
        self._found = found
        self._job_id = job_id
        self._foreign = sorted((each for each in letters if is_foreign_letter(each)), key=created_at)
        known = None if found is None else readable_entry(workload, found)
        self._status = _DEAD if known is None else known["status"]
        dead = self._status == _DEAD
        taken = {each["generation"] for each in letters if not is_foreign_letter(each)}
        first = 1 if known is None or not dead else known["generation"]
        generations = islice((number for number in count(first) if number not in taken), len(self._foreign))
        self._letters = [
            letter_in_our_shape(
                workload,
                each,
                job_id=job_id,
                generation=generation,
                seen_at=None if known is None else known["firstSeenAt"],
            )
            for each, generation in zip(self._foreign, generations, strict=True)
        ]
        self._next = max([*taken, *(each["generation"] for each in self._letters)], default=0) + (not dead)

    def letter_writes(self) -> list[Any]:
        """Replace the other system's letters with ours."""
        gone = [DeleteOne({"_id": each["_id"]}) for each in self._foreign]
        return [*gone, *(InsertOne(each) for each in self._letters)]

    def entry_writes(self) -> list[Any]:
        """Replace a settled entry with an entry in our shape. An ``_id`` cannot be changed, so the document is new."""
        found = self._found
        if found is None:
            if not self._letters:
                return []
            entry = entry_of_letter(self._workload, self._letters[-1])
            return [InsertOne(entry | self._fields_from_letters(entry))]
        if is_foreign(found):
            if self._status not in SETTLED:
                return []
            entry = entry_in_our_shape(self._workload, found) | {"_id": self._job_id}
            return [DeleteOne({"_id": found["_id"]}), InsertOne(entry | self._fields_from_letters(entry))]
        changes = self._fields_from_letters(found)
        return [UpdateOne({"_id": found["_id"]}, {"$set": changes})] if changes else []

    def _fields_from_letters(self, entry: Mapping[str, Any]) -> Document:
        """The fields of the entry that follow from its letters: generation, retention, and the body if it has none."""
        if not self._letters:
            return {}
        last = self._letters[-1]
        until = max(each["expiresAt"] for each in self._letters)
        fields: Document = {
            "generation": max(entry["generation"], self._next),
            "lettersUntil": max(until, entry.get("lettersUntil") or until),
        }
        if (expires := instant_of(entry.get("expiresAt"))) is not None:
            fields["expiresAt"] = max(expires, fields["lettersUntil"])
        if self._status == _DEAD and "body" not in entry:
            fields |= {"body": last["body"], "labels": {**entry["labels"], **last["labels"]}}
        return fields


# --- entries of ours that another system's worker settled -----------------------------------------------------


async def _repair_all(link: Link, collections: WorkloadCollections) -> int:
    """Repair all entries that another system has overwritten; return how many."""
    number = 0
    for sign in _OVERWRITTEN:
        wanted = {**sign, "status": {"$in": SETTLED}, "fence": {"$exists": True}}
        found = await link.run(partial(_read, collections.entries, wanted, {"_id": 1}), seconds=_A_LONG_LOOK)
        for start in range(0, len(found), _BATCH):
            number += await repair(link, collections, [each["_id"] for each in found[start : start + _BATCH]])
    return number


async def repair(link: Link, collections: WorkloadCollections, job_ids: Sequence[str]) -> int:
    """Repair entries of ours that another system's worker settled; return how many.

    An entry that our own worker has settled by now needs no repair. An entry that changes meanwhile is left to the next
    call. A dead-lettered entry gets its dead letter (I8): the other
    system's letter, or a new letter with the entry's error when the other system has written none.
    """
    settled = await _overwritten(link, collections, job_ids)
    dead = [each["idempotencyKey"] for each in settled if each["status"] == _DEAD]
    if dead:
        await link.transaction(partial(import_keys, collections=collections, keys=dead))
        await link.transaction(partial(_write_missing_letters, collections=collections, keys=dead))
        settled = await _overwritten(link, collections, [each["_id"] for each in settled])
    writes = []
    for each in settled:
        fields = repaired_fields(each)
        fields.setdefault("expiresAt", fields["updatedAt"] + collections.workload.retention)
        writes.append(
            UpdateOne(
                {"_id": each["_id"], "status": each["status"], "updatedAt": each["updatedAt"]},
                {
                    "$set": fields | {"note": WORKED_ELSEWHERE},
                    "$unset": {"dueAt": "", "leaseUntil": "", "openLane": ""},
                },
            )
        )
    if not writes:
        return 0
    done = await link.run(partial(collections.entries.bulk_write, writes, ordered=False))
    return done.modified_count


async def _overwritten(link: Link, collections: WorkloadCollections, job_ids: Sequence[str]) -> list[Document]:
    wanted = {"_id": {"$in": list(job_ids)}, "status": {"$in": SETTLED}, "$or": list(_OVERWRITTEN)}
    return await link.run(partial(_read, collections.entries, wanted))


async def _write_missing_letters(session: Session, *, collections: WorkloadCollections, keys: Sequence[str]) -> None:
    same_key = {"idempotencyKey": {"$in": list(keys)}}
    entries = await _read(collections.entries, same_key, session=session)
    letters = await _read(collections.letters, same_key, {"idempotencyKey": 1, "generation": 1}, session)
    written = {(each["idempotencyKey"], each.get("generation")) for each in letters}
    missing = []
    for each in entries:
        # A letter without a generation: the other system has written it just now. The next import converts it.
        its_letters = {(each["idempotencyKey"], generation) for generation in (each["generation"], None)}
        if each["status"] == _DEAD and not its_letters & written:
            missing.append(_letter_of(collections.workload, each | repaired_fields(each)))
    if missing:
        await collections.letters.insert_many(missing, session=session)


def _letter_of(workload: Workload[Any], entry: Mapping[str, Any]) -> Document:
    """A letter for an entry that another system set to ``dead_lettered`` without a letter."""
    code, message = entry.get("lastErrorCode") or "UNKNOWN", entry.get("lastErrorMessage") or ""
    transition = MoveToDeadLetters(
        letter_id=letter_id(workload.name, entry["idempotencyKey"], entry["generation"]),
        code=code,
        message=message,
        reason_code=code,
        reason_message=message,
        retention=workload.retention,
        letter_retention=workload.letter_retention,
        body=workload.letter_body(entry["body"]),
    )
    return new_letter(workload, entry, transition, entry["updatedAt"])


# --- records --------------------------------------------------------------------------------------------------


async def _import_instants(link: Link, record_collection: RecordCollection) -> int:
    """Turn instants that are text into dates, unless they change meanwhile; return how many records were changed."""
    names = record_collection.instants
    number = 0
    which = {"$or": [{name: {"$type": "string"}} for name in names]}
    async for found in _pages(link, record_collection.collection, which, dict.fromkeys(names, 1)):
        writes = []
        for document in found:
            text = {name: document[name] for name in names if isinstance(document.get(name), str)}
            dates = {name: instant for name, value in text.items() if (instant := instant_of(value)) is not None}
            if dates:
                writes.append(UpdateOne({"_id": document["_id"], **text}, {"$set": dates}))
        if writes:
            done = await link.run(partial(record_collection.collection.bulk_write, writes, ordered=False))
            number += done.modified_count
    return number


# --- reading --------------------------------------------------------------------------------------------------


async def _pages(
    link: Link, collection: Collection, which: Document, fields: Document
) -> AsyncIterator[list[Document]]:
    """Documents whose ids are ObjectIds, in the order of their ids, a page at a time."""
    last = _FIRST
    while True:
        wanted = {"_id": {"$gt": last}} | which

        async def look(wanted: Document = wanted) -> list[Document]:
            return await collection.find(wanted, fields).sort("_id", ASCENDING).limit(_BATCH).to_list()

        found = await link.run(look, seconds=_A_LONG_LOOK)
        if not found:
            return
        yield found
        last = found[-1]["_id"]


async def _read(
    collection: Collection,
    which: Document,
    fields: Document | None = None,
    session: Session | None = None,
) -> list[Document]:
    return await collection.find(which, fields, session=session).to_list()
