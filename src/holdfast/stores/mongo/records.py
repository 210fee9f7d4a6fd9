"""Records: applying effects to them in a transaction, and reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, DESCENDING, DeleteOne, InsertOne, ReplaceOne
from pymongo.errors import BulkWriteError

from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.effects import Effect, Upsert
from holdfast.contracts.errors import EffectRefused, InvalidQuery
from holdfast.contracts.queries import Page, RecordQuery, Slice
from holdfast.contracts.times import isoformat
from holdfast.stores.fields import check_fields, position_of, slice_of, to_cursor
from holdfast.stores.folding import (
    CREATED,
    UPDATED,
    Fold,
    Write,
    check_effect,
    keys_by_collection,
    upserted_keys,
    writes_of,
)

from .documents import cursor_at, parse_cursor, too_deep
from .foreign import instant_of, plain
from .link import LONG, Collection, Document, Link, Session
from .server import DUPLICATE_KEY, TOO_MUCH_AT_ONCE, is_transient, write_errors

_LARGEST: Final = 16 * 1024 * 1024 - 64
"""Bytes of a document, with a little space for its ``_id``."""
_ISO_LENGTH: Final = 24
_WITHOUT_ID: Final = {"_id": 0}
_NO_JOB: Final = ""
"""The job id for effects that belong to no job."""


class RecordCollection:
    """One collection of records, and how they are written and read."""

    def __init__(self, kind: Kind, collection: Collection) -> None:
        self.kind = kind
        self.collection = collection
        self.instants = tuple({*kind.instants, CREATED, UPDATED})

    def encoded(self, document: Mapping[str, Any]) -> bytes:
        """The record as BSON, with its instants as dates."""
        stored = dict(document)
        for name in self.instants:
            if name in stored:
                stored[name] = _stored(stored[name])
        return bson.encode(stored)

    @staticmethod
    def decoded(document: Document) -> Document:
        """The record as effects and readers see it: its instants are ISO text."""
        for name, value in document.items():
            kind = type(value)
            if kind is datetime:
                document[name] = isoformat(value)
            elif kind not in _SIMPLE:
                document[name] = plain(value)
        return document

    def matching(self, where: Mapping[str, Any]) -> Document:
        """The condition for these values of indexed fields."""
        check_fields(self.kind, where)
        return {name: {"$eq": _stored(value) if name in self.instants else value} for name, value in where.items()}

    def older(self, instant: str, cursor: str | None) -> Document:
        """The condition for records with this instant that come after the position of a cursor."""
        if instant not in self.instants:
            message = f"Records of {self.kind.name} have no order by {instant!r}: it is not one of their instants."
            raise InvalidQuery(message)
        if cursor is None:
            return {instant: {"$type": "date"}}
        at, key = parse_cursor(cursor)
        # The first part is there for the index.
        return {instant: {"$lte": at}, "$or": [{instant: {"$lt": at}}, {self.kind.key: {"$lt": key}}]}


_SIMPLE: Final = frozenset({str, int, float, bool, type(None)})


@lru_cache(256)  # effects of one collection mostly set the same fields
def _are_allowed(names: tuple[str, ...]) -> bool:
    return "_id" not in names and not any(str(name).startswith("$") for name in names)


def _stored(value: Any) -> Any:  # noqa: ANN401 - any value of a document
    """ISO text as a date. Any other value stays as it is."""
    return _date(value) or value if isinstance(value, str) and len(value) == _ISO_LENGTH else value


@lru_cache(1024)  # most instants of one batch are equal: the time of its commit
def _date(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo is not None and isoformat(instant) == text else None


class RecordCollections:
    """All collections of records in this process, of workloads and of no workload."""

    def __init__(self, link: Link, kinds: Sequence[Kind]) -> None:
        self._link = link
        self._record_collections = {kind.name: RecordCollection(kind, link.collection(kind.name)) for kind in kinds}
        self._key_fields = {kind.name: kind.key for kind in kinds}

    def __iter__(self) -> Iterator[RecordCollection]:
        return iter(self._record_collections.values())

    def record_collection(self, name: str) -> RecordCollection:
        """The collection with this name."""
        try:
            return self._record_collections[name]
        except KeyError:
            message = f"Nothing in this process declares the collection {name!r}."
            raise InvalidQuery(message) from None

    async def apply(
        self,
        session: Session,
        now: datetime,
        effects: Sequence[tuple[str, Sequence[Write]]],
    ) -> list[str | None]:
        """Fold the jobs' effects into the records, in order, and write each record once.

        Returns for each job a note, or None. The note marks a job with an effect that was skipped as stale. The
        transaction must be aborted when an effect is refused.
        """
        wanted: dict[str, dict[str, None]] = {}
        for job_id, batch in effects:
            for effect in batch:
                self._check(job_id, effect)
                wanted.setdefault(effect.collection, {})[effect.key] = None
        fold = _BsonFold(isoformat(now), self._record_collections)
        changed = upserted_keys(effects)
        for name, keys in wanted.items():
            await fold.load(session, name, list(keys), changed.get(name, frozenset()))
        notes = fold.apply(effects, self._key_fields)
        for name in wanted:
            await fold.save(session, name)
        return notes

    async def commit(self, effects: Sequence[Effect]) -> None:
        """Apply effects that belong to no job, in a transaction of their own.

        If the reply to the commit is lost, the effects are applied again. The records are the same after that.
        """
        now = await self._link.about_now()
        writes = writes_of(_NO_JOB, effects)
        await self._link.transaction(lambda session: self.apply(session, now, [(_NO_JOB, writes)]))

    def _check(self, job_id: str, effect: Write) -> None:
        check_effect(job_id, effect, self._record_collections)
        if not isinstance(effect, Upsert):
            return
        key_field = self._key_fields[effect.collection]
        for fields in (effect.set, effect.set_on_insert, effect.add):
            if fields.get(key_field, effect.key) != effect.key:
                raise EffectRefused(job_id, f"An effect on {effect.collection} gives its record another key.")
            if not _are_allowed(tuple(fields)):
                raise EffectRefused(job_id, f"A record of {effect.collection} cannot have a field _id or $...")

    # --- reading ------------------------------------------------------------------------------------------

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """One record."""
        record_collection = self.record_collection(collection)
        wanted = {record_collection.kind.key: {"$eq": key}}
        found = await self._link.run(lambda: record_collection.collection.find_one(wanted, _WITHOUT_ID))
        return None if found is None else record_collection.decoded(found)

    async def get_many(self, wanted: Sequence[tuple[str, str]]) -> list[Mapping[str, Any] | None]:
        """Records by collection and key, with one query for each collection, all at the same time."""
        reads = [self._read(name, keys) for name, keys in keys_by_collection(wanted).items()]
        found = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
        records = {each: record for some in found for each, record in some.items()}
        return [records.get(each) for each in wanted]

    async def _read(self, name: str, keys: Sequence[str]) -> dict[tuple[str, str], Mapping[str, Any]]:
        record_collection = self.record_collection(name)
        field = record_collection.kind.key
        among = {field: {"$in": keys}} if len(keys) > 1 else {field: {"$eq": keys[0]}}
        found = await self._link.run(lambda: record_collection.collection.find(among, _WITHOUT_ID).to_list())
        return {(name, each[field]): record_collection.decoded(each) for each in found}

    async def find(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """Records by the values of indexed fields, in the order of their keys, or newest first.

        Newest first is fast when an index has the fields in ``where``, then the instant, then the key.
        """
        record_collection = self.record_collection(query.collection)
        key, instant = record_collection.kind.key, query.newest_by
        conditions = [record_collection.matching(query.where)]
        order = [(key, ASCENDING)]
        if instant is not None:
            conditions.append(record_collection.older(instant, page.cursor))
            order = [(instant, DESCENDING), (key, DESCENDING)]
        elif page.cursor:
            conditions.append({key: {"$gt": position_of(page.cursor)}})
        wanted = {"$and": conditions}
        rows = await self._link.run(
            lambda: record_collection.collection.find(wanted, _WITHOUT_ID).sort(order).limit(page.limit + 1).to_list(),
            seconds=LONG,
        )

        def cursor(row: Document) -> str:
            return to_cursor(row[key]) if instant is None else cursor_at(row[instant], row[key])

        return slice_of(rows, page, record_collection.decoded, cursor)


class _BsonFold(Fold):
    """A fold that loads records from MongoDB, encodes the changed records as BSON, and saves them."""

    def __init__(self, now: str, record_collections: Mapping[str, RecordCollection]) -> None:
        super().__init__(now)
        self._record_collections = record_collections
        self._ids: dict[str, dict[str, Any]] = {}
        self._encoded: dict[str, dict[str, bytes]] = {}
        self._writers: dict[str, dict[str, str]] = {}

    async def load(self, session: Session, name: str, keys: Sequence[str], changed: AbstractSet[str]) -> None:
        """Read the records that effects name. Those that are only deleted are not read whole: they may be many."""
        record_collection = self._record_collections[name]
        self.records[name], self._ids[name] = {}, {}
        self._encoded[name], self._writers[name] = {}, {}
        key_field = record_collection.kind.key
        deleted = [key for key in keys if key not in changed]
        for wanted, fields in ((list(changed), None), (deleted, {key_field: 1})):
            if not wanted:
                continue
            among = {key_field: {"$in": wanted}}
            for found in await record_collection.collection.find(among, fields, session=session).to_list():
                identity, document = found.pop("_id"), record_collection.decoded(found)
                key = document[key_field]
                self.records[name][key], self._ids[name][key] = document, identity

    def comparable(self, stored: Any, new: Any) -> Any:  # noqa: ANN401 - any value of a record
        """The stored value. An instant that another system wrote as text gets our form, which sorts by time."""
        if not isinstance(_stored(new), datetime) or (instant := instant_of(stored)) is None:
            return stored
        return isoformat(instant)

    def check(self, job_id: str, effect: Upsert, changed: Mapping[str, Any]) -> str:
        """Refuse a record that MongoDB cannot store. Here it is still known which job's effect it is."""
        text = super().check(job_id, effect, changed)
        name = effect.collection
        if too_deep(text, changed):
            raise EffectRefused(job_id, f"A record of {name} is nested too deep.")
        try:
            encoded = self._record_collections[name].encoded(changed)
        except (BSONError, OverflowError, ValueError, RecursionError) as error:
            message = f"MongoDB cannot hold a record of {name} ({type(error).__name__})."
            raise EffectRefused(job_id, message) from error
        if len(encoded) > _LARGEST:
            raise EffectRefused(job_id, f"A record of {name} is larger than MongoDB's 16 MB.")
        self._encoded[name][effect.key] = encoded
        self._writers[name][effect.key] = job_id
        return text

    async def save(self, session: Session, name: str) -> None:
        """Write the changed records. A record that another transaction wrote meanwhile is a conflict."""
        record_collection, ids = self._record_collections[name], self._ids[name]
        new: list[InsertOne[Document]] = []
        changed: list[ReplaceOne[Document]] = []
        jobs_of_new, jobs_of_changed = list[str](), list[str]()
        for key, encoded in self._encoded[name].items():
            if key not in self.records[name]:
                continue
            whole: Any = RawBSONDocument(encoded)
            if key in ids:
                changed.append(ReplaceOne({"_id": ids[key]}, whole))
                jobs_of_changed.append(self._writers[name][key])
            else:
                new.append(InsertOne(whole))
                jobs_of_new.append(self._writers[name][key])
        deleted = [DeleteOne({"_id": identity}) for key, identity in ids.items() if key not in self.records[name]]
        # Each record is written once, so the order does not matter. The driver sends neighbours of one kind together.
        writes: list[InsertOne[Document] | ReplaceOne[Document] | DeleteOne] = [*new, *changed, *deleted]
        jobs = [*jobs_of_new, *jobs_of_changed]
        if not writes:
            return
        try:
            await record_collection.collection.bulk_write(writes, session=session)
        except BulkWriteError as error:
            refused = write_errors(error)
            # In a race for a new key, or in a batch that is too large, the refused record may be fine.
            if is_transient(error) or not refused or refused[0]["code"] in {DUPLICATE_KEY, TOO_MUCH_AT_ONCE}:
                raise
            position = refused[0]["index"]
            if position >= len(jobs):
                raise
            message = f"MongoDB refuses a record of {name} (code {refused[0]['code']})."
            raise EffectRefused(jobs[position], message) from None
