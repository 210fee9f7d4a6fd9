"""Creating the collections and indexes, for a new database and for ``holdfast migrate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pymongo import IndexModel
from pymongo.errors import CollectionInvalid, OperationFailure

from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.workload import Workload

from .link import Collection, Document, Link
from .schema import FACTS, VERSION, Index, retired, wanted
from .server import DUPLICATE_KEY

_BUILD_SECONDS: Final = 3600.0
_SCHEMA: Final = "schema"


class Schema:
    """Compares the present collections and indexes with the wanted ones, and creates what is missing."""

    def __init__(self, link: Link, workloads: Sequence[Workload[Any]], collections: Sequence[Kind] = ()) -> None:
        self._link = link
        self._wanted = wanted(workloads, collections)
        self._retired = retired(workloads)

    @property
    def collections(self) -> Sequence[str]:
        """The names of the collections."""
        return tuple(self._wanted)

    async def prepare(self) -> None:
        """Create what is missing in new collections; raise when a guarantee would be missing in others.

        Collections with documents are left to ``holdfast migrate``: building a big index takes long, so an operator
        should choose when.
        """
        await self._check_version()
        # In this order, because another process may be creating everything at this moment.
        empty = {name: await self._empty(name) for name in self._wanted}
        lacking = await self._lacking()
        fresh = {name: indexes for name, indexes in lacking.items() if empty[name]}
        for name, indexes in lacking.items():
            if name in fresh:
                continue
            unguarded = [index for index in indexes if index.unique and not await self._guarded(name, index)]
            if unguarded and await self._none_indexed(name, unguarded):
                # Another system filled the collection. No document of ours is in it yet, so the index is built fast.
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
        """Create what is missing, and change what is different; return what was done, one sentence each."""
        await self._check_version()
        done = []
        for name in await self._collections() & self._wanted.keys():
            done += await self._drop_different(self._link.collection(name), self._wanted[name])
        lacking = await self._lacking()
        done += await self._create(lacking) if lacking else []
        # Last, because a list that is read meanwhile needs either the old indexes or the new ones.
        for name, indexes in (await self._left_over()).items():
            for index in indexes:
                await self._link.run(partial(_drop, self._link.collection(name), index.name))
                done.append(f"Dropped the index {_describe(index)} of {name}: nothing uses it.")
        return done

    async def missing(self) -> list[str]:
        """What is missing or different, one sentence each."""
        present = await self._collections()
        sentences = []
        for name, indexes in (await self._lacking()).items():
            if name not in present:
                sentences.append(f"The collection {name} does not exist.")
            else:
                sentences += [f"The collection {name} has no index {_describe(index)}." for index in indexes]
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
        """Whether an index of an earlier version, which covers all documents, gives the same guarantee."""
        return {"unique": True} in (await self._indexes(name)).get(index.keys, {}).values()

    async def _none_indexed(self, name: str, indexes: Sequence[Index]) -> bool:
        """Whether no document fulfils the conditions of these indexes."""
        collection = self._link.collection(name)
        for index in indexes:
            if not index.only:
                return False
            wanted = dict(index.only)
            if await self._link.run(lambda wanted=wanted: collection.find_one(wanted, {"_id": 1})) is not None:  # type: ignore[misc]
                return False
        return True

    async def _lacking(self) -> dict[str, list[Index]]:
        """The collections that are missing or lack an index, with the missing indexes."""
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

    async def _left_over(self) -> dict[str, list[Index]]:
        """The collections that have indexes of an earlier version which nothing uses, with these indexes."""
        present = await self._collections()
        found = {}
        for name in present & self._retired.keys():
            there = await self._indexes(name)
            old = [index for index in self._retired[name] if index.name in there.get(index.keys, {})]
            if old:
                found[name] = old
        return found

    async def _indexes(self, name: str) -> dict[tuple[tuple[str, int], ...], dict[str, Document]]:
        """The options of the indexes, by their fields and their names. Two indexes may have the same fields."""
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
            done += await self._drop_different(collection, indexes)
            if indexes:
                await self._build(collection, indexes)
                done += [f"Created the index {_describe(index)} of {name}." for index in indexes]
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
            if error.code != 48:  # noqa: PLR2004 - NamespaceExists: another process was first
                raise

    async def _drop_different(self, collection: Collection, indexes: Sequence[Index]) -> list[str]:
        """Drop indexes with the right fields and the wrong options. Otherwise MongoDB refuses the right indexes."""
        there = await self._link.run(collection.index_information)
        done = []
        for name, spec in there.items():
            # Check again: another process may have created the right index a moment ago.
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
        except _DuplicateDocuments as error:
            message = (
                f"A unique index of {collection.name} cannot be built: several of its documents have the same key. "
                "Remove the ones that are not wanted, then run: holdfast migrate"
            )
            raise ConfigurationError(message) from error


class _DuplicateDocuments(Exception):
    """The collection already has documents that the unique index forbids."""


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
            raise _DuplicateDocuments from None
        raise


def _options(spec: Mapping[str, Any]) -> Document:
    """The options of an index that we compare."""
    options: Document = {}
    for name in ("unique", "sparse"):
        if spec.get(name):
            options[name] = True
    if "expireAfterSeconds" in spec:
        options["expireAfterSeconds"] = int(spec["expireAfterSeconds"])
    if "partialFilterExpression" in spec:
        conditions = spec["partialFilterExpression"].items()
        options["partialFilterExpression"] = {key: dict(value) for key, value in conditions}
    return options


def _describe(index: Index) -> str:
    fields = ", ".join(field for field, _ in index.keys)
    kinds = [word for word, wanted in (("unique", index.unique), ("TTL", index.linger is not None)) if wanted]
    return f"({fields})" + (f" [{', '.join(kinds)}]" if kinds else "")
