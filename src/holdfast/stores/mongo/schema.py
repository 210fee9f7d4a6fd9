"""The collections and their indexes.

Names, fields and indexes are the seeds' (``processed_events``, ``dead_letter_events``, ``active_shipments``); the
engine adds a few of its own. Every workload has a collection of entries and one of dead letters:

- entries: ``_id`` is the job id. ``idempotencyKey, <labels as columns>, status, generation, attemptCount,
  attemptHistory, lastErrorCode, lastErrorMessage, firstSeenAt, updatedAt, expiresAt`` are for people;
  ``fence, leaseUntil, notBefore, dueAt, deadline, life, lettersUntil`` steer the engine; ``recordId, claimId, settleId,
  sweepId`` name the call that wrote last, so that a call whose answer was lost recognises its own work.
- dead letters: ``_id`` is the letter's id. ``payloadSnapshot`` is for people, ``body`` the same as exact text.
  ``publishedTo`` is the mark of the queue that has been given the letter, with a ``-`` before it once it was withdrawn.
- ``holdfast_facts``: what the store knows about its surroundings, by name.
- ``holdfast_processes``: who is there, with which sessions; see :mod:`.presence`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ledger import Status
from holdfast.contracts.workload import Workload

from .failures import DUPLICATE_KEY
from .link import Collection, Document, Link
from .presence import PROCESSES

FACTS: Final = "holdfast_facts"
VERSION: Final = 1
"""Of the layout above. A store that finds a higher number does not touch the data."""

WAITING: Final = (Status.RECEIVED.value, Status.FAILED.value)

# The server's own TTL monitor is the second net. Pruning comes first, because it tells the queue which letters are
# gone; and an entry must outlive its letter (I12), so its turn comes last of all.
_LETTERS_LINGER: Final = timedelta(hours=1)
_ENTRIES_LINGER: Final = timedelta(hours=2)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_BUILD_SECONDS: Final = 3600.0
_SCHEMA: Final = "schema"
_OURS: Final = frozenset(
    {
        "_id",
        "idempotencyKey",
        "status",
        "generation",
        "attemptCount",
        "attemptHistory",
        "lastErrorCode",
        "lastErrorMessage",
        "firstSeenAt",
        "updatedAt",
        "expiresAt",
        "createdAt",
        "fence",
        "leaseUntil",
        "notBefore",
        "dueAt",
        "deadline",
        "life",
        "lettersUntil",
        "recordId",
        "claimId",
        "settleId",
        "sweepId",
        "body",
        "fingerprint",
        "labels",
        "priority",
        "note",
        "result",
        "replayOf",
        "jobId",
        "terminalReasonCode",
        "terminalReasonMessage",
        "payloadSnapshot",
        "reviewStatus",
        "decisions",
        "replayedAs",
        "publishedTo",
    }
)


@dataclass(frozen=True, slots=True)
class Index:
    """One index. A ``unique`` one is what a guarantee rests on; the others are there for speed and for retention."""

    keys: tuple[tuple[str, int], ...]
    unique: bool = False
    sparse: bool = False
    linger: timedelta | None = None
    """With a value: documents go so long after the instant in the indexed field."""
    only: tuple[tuple[str, Any], ...] = ()
    """Conditions that an indexed document meets."""

    @property
    def name(self) -> str:
        """The name that MongoDB itself would give it."""
        return "_".join(f"{field}_{direction}" for field, direction in self.keys)

    @property
    def options(self) -> Document:
        """What ``listIndexes`` tells about it beyond its keys."""
        options: Document = {}
        if self.unique:
            options["unique"] = True
        if self.sparse:
            options["sparse"] = True
        if self.linger is not None:
            options["expireAfterSeconds"] = int(self.linger.total_seconds())
        if self.only:
            options["partialFilterExpression"] = dict(self.only)
        return options

    def model(self) -> IndexModel:
        """As the driver wants it."""
        return IndexModel(list(self.keys), name=self.name, **self.options)


def _on(*fields: str, **options: Any) -> Index:  # noqa: ANN401 - the index's own options
    return Index(tuple((field, ASCENDING) for field in fields), **options)


def _newest(*fields: str) -> Index:
    """For listings that start with the newest entry."""
    before = tuple((field, ASCENDING) for field in fields)
    return Index((*before, ("firstSeenAt", DESCENDING), ("_id", DESCENDING)))


def label_field(workload: Workload[Any], label: str) -> str:
    """Where a label is indexed: in its column, if it has one."""
    return label if label in workload.label_columns else f"labels.{label}"


def ledger_name(workload: Workload[Any]) -> str:
    """The collection of a workload's entries."""
    return workload.ledger_name or f"{workload.name}_jobs"


def letters_name(workload: Workload[Any]) -> str:
    """The collection of its dead letters."""
    return workload.letters_name or f"{workload.name}_dead_letters"


def wanted(workloads: Sequence[Workload[Any]]) -> dict[str, list[Index]]:
    """Every collection with its indexes; names that MongoDB or a person would stumble over are refused."""
    found: dict[str, list[Index]] = {FACTS: [], PROCESSES: []}
    for workload in workloads:
        for label in (*workload.label_columns, *workload.indexed_labels):
            _check(label)
        for label in workload.label_columns:
            if label in _OURS:
                message = f"{label!r} cannot be a label column of {workload.name}: entries have a field of that name."
                raise ConfigurationError(message)
        for name, indexes in (
            (ledger_name(workload), _entry_indexes(workload)),
            (letters_name(workload), _letter_indexes()),
        ):
            if name in found:
                message = f"Two workloads want the collection {name!r} for themselves."
                raise ConfigurationError(message)
            found[_check(name)] = indexes
    for collection in (each for workload in workloads for each in workload.collections):
        indexes = [_on(_check(collection.key), unique=True)]
        indexes += [_on(*map(_check, fields)) for fields in collection.indexes]
        if found.setdefault(_check(collection.name), indexes) != indexes:
            message = f"Two workloads declare the collection {collection.name!r}, and not in the same way."
            raise ConfigurationError(message)
    return found


def _entry_indexes(workload: Workload[Any]) -> list[Index]:
    waits = (("deadline", {"$exists": True}), ("status", {"$in": list(WAITING)}))
    return [
        _on("idempotencyKey", unique=True),
        _on("status", "updatedAt"),
        _on("expiresAt", sparse=True, linger=_ENTRIES_LINGER),
        _on("dueAt", sparse=True),
        *([_on("deadline", only=waits)] if workload.life is not None else []),
        _newest(),
        *(_newest(label_field(workload, label)) for label in workload.indexed_labels),
    ]


def _letter_indexes() -> list[Index]:
    return [
        _on("reviewStatus", "createdAt"),
        _on("createdAt"),
        _on("expiresAt", linger=_LETTERS_LINGER),
        _on("idempotencyKey", "generation", unique=True),
        _on("createdAt", "_id"),
        _on("reviewStatus", "publishedTo", "createdAt"),
    ]


def _check(name: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("system"):
        message = f"{name!r} cannot be the name of a collection or a field: use letters, digits and _."
        raise ConfigurationError(message)
    return name


# --- what is there, and what is not ---------------------------------------------------------------------------


class Schema:
    """Compares what is there with what is wanted, and makes up the difference."""

    def __init__(self, link: Link, workloads: Sequence[Workload[Any]]) -> None:
        self._link = link
        self._wanted = wanted(workloads)

    @property
    def collections(self) -> Sequence[str]:
        """Their names."""
        return tuple(self._wanted)

    async def prepare(self) -> None:
        """Create what is absent in collections that are new; raise where a guarantee would be missing.

        Collections with documents are left to ``holdfast migrate``: a big index takes its time, and an operator
        should choose when.
        """
        await self._check_version()
        # First whether it is empty, then what it has: another process may be creating all of it at this moment.
        empty = {name: await self._empty(name) for name in self._wanted}
        lacking = await self._lacking()
        fresh = {name: indexes for name, indexes in lacking.items() if empty[name]}
        for name, indexes in lacking.items():
            unguarded = [index.name for index in indexes if index.unique]
            if unguarded and name not in fresh:
                message = (
                    f"The MongoDB collection {name} lacks the unique index {', '.join(unguarded)}. "
                    "Run: holdfast migrate"
                )
                raise ConfigurationError(message)
        if fresh:
            await self._create(fresh)

    async def migrate(self) -> list[str]:
        """Create whatever is absent, and change what is different; return what was done, one sentence each."""
        await self._check_version()
        return await self._create(await self._lacking())

    async def missing(self) -> list[str]:
        """What is absent or different, one sentence each."""
        present = await self._collections()
        sentences = []
        for name, indexes in (await self._lacking()).items():
            if name not in present:
                sentences.append(f"The collection {name} does not exist.")
            else:
                sentences += [f"The collection {name} has no index {_told(index)}." for index in indexes]
        return sentences

    async def _check_version(self) -> None:
        fact = await self._link.run(lambda: self._link.collection(FACTS).find_one({"_id": _SCHEMA}))
        if fact is not None and fact["value"] > VERSION:
            message = (
                f"The database's layout is version {fact['value']}; this Holdfast knows {VERSION}. "
                "Run the newer Holdfast that wrote it."
            )
            raise ConfigurationError(message)

    async def _collections(self) -> set[str]:
        return set(await self._link.run(self._link.database.list_collection_names))

    async def _empty(self, name: str) -> bool:
        collection = self._link.collection(name)
        return await self._link.run(lambda: collection.find_one({}, {"_id": 1})) is None

    async def _lacking(self) -> dict[str, list[Index]]:
        """The collections that are absent or lack an index, with those indexes."""
        present = await self._collections()
        lacking = {}
        for name, indexes in self._wanted.items():
            if name not in present:
                lacking[name] = indexes
                continue
            there = await self._indexes(name)
            absent = [index for index in indexes if there.get(index.keys) != index.options]
            if absent:
                lacking[name] = absent
        return lacking

    async def _indexes(self, name: str) -> dict[tuple[tuple[str, int], ...], Document]:
        found = await self._link.run(self._link.collection(name).index_information)
        return {tuple(spec["key"]): _options(spec) for spec in found.values()}

    async def _create(self, lacking: Mapping[str, Sequence[Index]]) -> list[str]:
        done = []
        present = await self._collections()
        for name, indexes in lacking.items():
            collection = self._link.collection(name)
            if name not in present:
                await self._link.run(lambda name=name: self._create_collection(name))  # type: ignore[misc]
                done.append(f"Created the collection {name}.")
            done += await self._make_way(collection, indexes)
            if indexes:
                await self._build(collection, indexes)
                done += [f"Created the index {_told(index)} of {name}." for index in indexes]
        await self._link.run(
            lambda: self._link.collection(FACTS).update_one({"_id": _SCHEMA}, {"$set": {"value": VERSION}}, upsert=True)
        )
        return done

    async def _create_collection(self, name: str) -> None:
        try:
            await self._link.database.create_collection(name)
        except CollectionInvalid:  # another process was first
            return
        except OperationFailure as error:
            if error.code != 48:  # noqa: PLR2004 - NamespaceExists, likewise
                raise

    async def _make_way(self, collection: Collection, indexes: Sequence[Index]) -> list[str]:
        """Drop indexes that have the right keys and the wrong options: MongoDB would refuse the right ones."""
        there = await self._link.run(collection.index_information)
        done = []
        for name, spec in there.items():
            # What was absent a moment ago may be there now: another process is at it too.
            if any(index.keys == tuple(spec["key"]) and index.options != _options(spec) for index in indexes):
                await self._link.run(lambda name=name: _drop(collection, name))  # type: ignore[misc]
                done.append(f"Dropped the index {name} of {collection.name}: its options were different.")
        return done

    async def _build(self, collection: Collection, indexes: Sequence[Index]) -> None:
        models = [index.model() for index in indexes]
        try:
            await self._link.run(lambda: _build(collection, models), seconds=_BUILD_SECONDS, patience=0)
        except _TwoOfOne as error:
            message = (
                f"A unique index of {collection.name} cannot be built: several of its documents have the same key. "
                "Remove the ones that are not wanted, then run: holdfast migrate"
            )
            raise ConfigurationError(message) from error


class _TwoOfOne(Exception):
    """Documents that a unique index would forbid are there already."""


async def _drop(collection: Collection, name: str) -> None:
    try:
        await collection.drop_index(name)
    except OperationFailure as error:
        if error.code != 27:  # noqa: PLR2004 - IndexNotFound: another process was first
            raise


async def _build(collection: Collection, models: Sequence[IndexModel]) -> None:
    try:
        await collection.create_indexes(list(models))
    except OperationFailure as error:
        if error.code == DUPLICATE_KEY:
            raise _TwoOfOne from None
        raise


def _options(spec: Mapping[str, Any]) -> Document:
    told: Document = {}
    for name in ("unique", "sparse"):
        if spec.get(name):
            told[name] = True
    if "expireAfterSeconds" in spec:
        told["expireAfterSeconds"] = int(spec["expireAfterSeconds"])
    if "partialFilterExpression" in spec:
        told["partialFilterExpression"] = {key: dict(value) for key, value in spec["partialFilterExpression"].items()}
    return told


def _told(index: Index) -> str:
    fields = ", ".join(field for field, _ in index.keys)
    kinds = [word for word, wanted in (("unique", index.unique), ("TTL", index.linger is not None)) if wanted]
    return f"({fields})" + (f" [{', '.join(kinds)}]" if kinds else "")
