"""Making the layout: what is there, what is not, and what ``holdfast migrate`` does about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pymongo import IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.workload import Workload

from .failures import DUPLICATE_KEY
from .link import Collection, Document, Link
from .schema import FACTS, VERSION, Index, wanted

_BUILD_SECONDS: Final = 3600.0
_SCHEMA: Final = "schema"


class Schema:
    """Compares what is there with what is wanted, and makes up the difference."""

    def __init__(self, link: Link, workloads: Sequence[Workload[Any]], collections: Sequence[Kind] = ()) -> None:
        self._link = link
        self._wanted = wanted(workloads, collections)

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
            if name in fresh:
                continue
            unguarded = [index for index in indexes if index.unique and not await self._guarded(name, index)]
            if unguarded and await self._nothing_of_ours(name, unguarded):
                # Another system filled it. What records of ours need is quickly made, for there are none yet.
                fresh[name] = [index for index in indexes if index.linger is None]
            elif unguarded:
                message = (
                    f"The MongoDB collection {name} lacks the unique index "
                    f"{', '.join(index.name for index in unguarded)}. "
                    "Run: holdfast migrate"
                )
                raise ConfigurationError(message)
        if fresh:
            await self._create(fresh)

    async def migrate(self) -> list[str]:
        """Create whatever is absent, and change what is different; return what was done, one sentence each."""
        await self._check_version()
        done = []
        for name in await self._collections() & self._wanted.keys():
            done += await self._make_way(self._link.collection(name), self._wanted[name])
        lacking = await self._lacking()
        return done + (await self._create(lacking) if lacking else [])

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

    async def _guarded(self, name: str, index: Index) -> bool:
        """Whether an index that an earlier version made, for all documents, gives the same guarantee."""
        return {"unique": True} in (await self._indexes(name)).get(index.keys, {}).values()

    async def _nothing_of_ours(self, name: str, indexes: Sequence[Index]) -> bool:
        """Whether no document meets the conditions of these indexes."""
        collection = self._link.collection(name)
        for index in indexes:
            if not index.only:
                return False
            wanted = dict(index.only)
            if await self._link.run(lambda wanted=wanted: collection.find_one(wanted, {"_id": 1})) is not None:  # type: ignore[misc]
                return False
        return True

    async def _lacking(self) -> dict[str, list[Index]]:
        """The collections that are absent or lack an index, with those indexes."""
        present = await self._collections()
        lacking = {}
        for name, indexes in self._wanted.items():
            if name not in present:
                lacking[name] = indexes
                continue
            there = await self._indexes(name)
            absent = [index for index in indexes if not index.is_there(there.get(index.keys, {}))]
            if absent:
                lacking[name] = absent
        return lacking

    async def _indexes(self, name: str) -> dict[tuple[tuple[str, int], ...], dict[str, Document]]:
        """The options of the indexes on each list of fields, by name; there may be several, with different options."""
        found = await self._link.run(self._link.collection(name).index_information)
        indexes: dict[tuple[tuple[str, int], ...], dict[str, Document]] = {}
        for index, spec in found.items():
            indexes.setdefault(tuple(spec["key"]), {})[index] = _options(spec)
        return indexes

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
            if any(
                index.keys == tuple(spec["key"]) and not index.is_there({name: _options(spec)}) for index in indexes
            ):
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
