"""The cluster's store. Its parts record, claim, settle, sweep and review; opening, reading and counting are here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING

from holdfast.contracts.effects import Collection, Effect
from holdfast.contracts.ledger import LedgerEntry, QueuePlaces, Status
from holdfast.contracts.queries import EntryQuery, Page, RecordQuery, Slice
from holdfast.contracts.workload import Workload
from holdfast.stores.fields import check_query, slice_of, texts_with

from . import importing
from .claiming import Claiming
from .documents import cursor_of, entry_of, newest
from .letters import Letters
from .link import LONG, Document, Link, aggregated, rights_explained
from .migrating import Schema
from .recording import Recording
from .schema import FACTS, NEWEST_FIRST, SETTLED, has_fairness_key, label_field
from .settling import Settling
from .sweeping import Sweeping

_PING: Final = 3.0
_ANY_STATUS: Final = [status.value for status in Status]
_BY_STATUS: Final[tuple[Document, ...]] = (
    {"$match": {"status": {"$in": _ANY_STATUS}}},
    {"$group": {"_id": "$status", "entries": {"$sum": 1}}},
)
_LAST_OF_EACH: Final[tuple[Document, ...]] = (
    {"$sort": {"openLane": 1, "priority": -1}},
    {"$group": {"_id": "$openLane", "end": {"$first": "$priority"}}},
)
_IN_WORK: Final = {"status": Status.PROCESSING.value, "openLane": {"$exists": True}}
_WAITING: Final = {"status": Status.RECEIVED.value, "openLane": {"$exists": True}}


class MongoStore(Recording, Claiming, Settling, Sweeping, Letters):
    """Ledger, dead letters and records in one database; implements :class:`holdfast.contracts.ports.Store`.

    ``collections``: the collections that belong to no workload.
    ``grace``: an entry that could be taken and stays untouched for this long is reported by ``due``.
    The server must be a replica set (of one member or more), version 6 or newer.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        workloads: Sequence[Workload[Any]],
        *,
        collections: Sequence[Collection] = (),
        grace: timedelta = timedelta(seconds=5),
    ) -> None:
        link = Link(uri, database)
        self._schema = Schema(link, workloads, collections)  # first: refuses names that MongoDB does not accept
        super().__init__(link, workloads, collections, grace)

    async def open(self) -> None:
        """Find the server and check it; create missing collections.

        Raises :class:`ConfigurationError` when a collection with documents lacks an index that a guarantee depends on
        (``holdfast migrate`` creates it), and :class:`StoreUnavailable` when no server answers.
        """
        await self.link.open()
        with rights_explained():
            await self._schema.prepare()

    async def disconnect(self) -> None:
        """Close the connections. The name is not ``close``, because that method closes dead letters."""
        await self.link.close()

    async def migrate(self) -> list[str]:
        """Create collections and indexes that are missing or different, and import another system's documents.

        Returns what was done, one sentence each.
        """
        await self.link.open()
        with rights_explained():
            done = await self._schema.migrate()
            return done + await importing.import_all(self.link, self.collections, self.records)

    # --- for `holdfast doctor` ----------------------------------------------------------------------------

    async def missing(self) -> list[str]:
        """What ``migrate`` would create, one sentence each."""
        await self.link.open()
        with rights_explained():
            return await self._schema.missing()

    async def foreign(self) -> list[str]:
        """Another system's documents in our collections, and what happens with them."""
        with rights_explained():
            return await importing.remaining(self.link, self.collections)

    async def foreign_places(self) -> list[str]:
        """The collections that have documents of another system; a fast check."""
        return await importing.foreign_collections(self.link, self.collections)

    async def facts(self) -> Mapping[str, str]:
        """Version, replica set and its size, and how many of our collections exist. Writes nothing.

        Raises :class:`ConfigurationError` for a server that Holdfast cannot work with.
        """
        await self.link.open()
        admin = self.link.database.client.admin
        hello = await self.link.run(lambda: admin.command("hello"))
        build = await self.link.run(lambda: admin.command("buildInfo"))
        present = set(await self.link.run(self.link.database.list_collection_names))
        ours = present.intersection(self._schema.collections)
        found = {"version": str(build["version"]), "collections": str(len(ours))}
        if "setName" in hello:
            members = [each for kind in ("hosts", "passives", "arbiters") for each in hello.get(kind, ())]
            found |= {"replica_set": str(hello["setName"]), "members": str(len(members))}
        return found

    # --- reading the ledger -------------------------------------------------------------------------------

    @property
    def publishes(self) -> bool:
        """See :attr:`holdfast.contracts.ports.Ledger.publishes`."""
        return False

    async def entry(self, workload: str, key: str) -> LedgerEntry | None:
        """See :meth:`holdfast.contracts.ports.Ledger.entry`."""
        collections = self.collections.get(workload)
        if collections is None:
            return None
        found = await self.link.run(lambda: collections.entries.find_one({"idempotencyKey": {"$eq": key}}))
        return None if found is None else entry_of(collections.workload, found)

    async def ended(self, workload: str, keys: Sequence[str]) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.ended`.

        The status is compared here: with a condition on it, the server could choose an index on all settled jobs.
        """
        collections = self.collections.get(workload)
        if collections is None or not keys:
            return []
        entries, asked = collections.entries, {"idempotencyKey": {"$in": list(set(keys))}}
        fields, together = {"_id": 0, "idempotencyKey": 1, "status": 1}, len(keys) + 1  # more than the driver's batch
        found = await self.link.run(lambda: entries.find(asked, fields, batch_size=together).to_list())
        terminal = {each["idempotencyKey"] for each in found if each.get("status") in SETTLED}
        return [key for key in keys if key in terminal]

    async def find(self, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.find`."""
        collections = self.collections.get(query.workload)
        if collections is None:
            return Slice([])
        check_query(query, collections.workload.indexed_labels)
        where: Document = {}
        if query.status is not None:
            where["status"] = query.status.value
        for label, value in query.labels.items():
            where[label_field(collections.workload, label)] = {"$eq": value}
        key: Document = {}
        if query.key is not None:
            key["$eq"] = query.key
        if query.key_prefix:
            key["$gte"], key["$lt"] = texts_with(query.key_prefix)
        if key:
            where["idempotencyKey"] = key
        span = newest("firstSeenAt", query.seen_after, query.seen_before, page.cursor)
        if query.status is None and not query.labels and query.key is None:
            where = _in_any_state(where, span)
        else:
            where |= span
        rows = await self.link.run(
            lambda: collections.entries.find(where).sort(NEWEST_FIRST).limit(page.limit + 1).to_list(), seconds=LONG
        )
        return slice_of(rows, page, partial(entry_of, collections.workload), partial(cursor_of, field="firstSeenAt"))

    async def counts(self, workload: str) -> Mapping[str, int]:
        """See :meth:`holdfast.contracts.ports.Ledger.counts`. An index alone answers."""
        collections = self.collections.get(workload)
        if collections is None:
            return {}
        found = await self.link.run(lambda: aggregated(collections.entries, _BY_STATUS), seconds=LONG)
        return {each["_id"]: each["entries"] for each in found}

    async def queue_places(self, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
        """See :meth:`holdfast.contracts.ports.Ledger.queue_places`. An index alone answers, however many jobs wait."""
        collections = self.collections.get(workload)
        if collections is None:
            return QueuePlaces()
        entries = collections.entries

        async def front() -> int:
            for which, order in ((_IN_WORK, DESCENDING), (_WAITING, ASCENDING)):
                by_place = [("priority", order)]
                found = await self.link.run(partial(entries.find_one, which, {"_id": 0, "priority": 1}, sort=by_place))
                if found is not None:
                    return int(found["priority"])
            return 0

        async def ends() -> dict[str, int]:
            if not fairness_keys:
                return {}
            pipeline: list[Document] = [{"$match": {"openLane": {"$in": list(set(fairness_keys))}}}, *_LAST_OF_EACH]
            return {each["_id"]: each["end"] for each in await self.link.run(lambda: aggregated(entries, pipeline))}

        return QueuePlaces(*await asyncio.gather(front(), ends()))

    async def count_unsettled(self, prefix: str, most: int) -> int:
        """See :meth:`holdfast.contracts.ports.Ledger.count_unsettled`."""
        first, end = texts_with(prefix)
        found = 0
        for collections in self.collections:
            if found >= most:
                break
            if not has_fairness_key(collections.workload):
                continue
            pipeline: list[Document] = [
                {"$match": {"openLane": {"$gte": first, "$lt": end}}},
                {"$limit": most - found},
                {"$count": "entries"},
            ]
            entries = collections.entries
            counted = await self.link.run(partial(aggregated, entries, pipeline), seconds=LONG)
            found += counted[0]["entries"] if counted else 0
        return found

    # --- records ------------------------------------------------------------------------------------------

    async def apply(self, effects: Sequence[Effect]) -> None:
        """See :meth:`holdfast.contracts.ports.Records.apply`."""
        await self.records.commit(effects)

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """See :meth:`holdfast.contracts.ports.Records.get`."""
        return await self.records.get(collection, key)

    async def get_many(self, wanted: Sequence[tuple[str, str]]) -> list[Mapping[str, Any] | None]:
        """See :meth:`holdfast.contracts.ports.Records.get_many`."""
        return await self.records.get_many(wanted)

    async def find_records(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """See :meth:`holdfast.contracts.ports.Records.find_records`."""
        return await self.records.find(query, page)

    # --- the store itself ---------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """See :meth:`holdfast.contracts.ports.Store.now`."""
        return await self.link.now()

    async def truncate_log(self) -> bool:
        """Nothing to do: MongoDB reuses the files of its journal by itself, and has no command that empties them."""
        return True

    async def ping(self) -> None:
        """See :meth:`holdfast.contracts.ports.Store.ping`."""
        # A write that changes nothing. The server still waits for a majority, as for every write.
        facts = self.link.collection(FACTS)
        await self.link.run(
            lambda: facts.update_one({"_id": "ping"}, {"$set": {"value": True}}, upsert=True), seconds=_PING, patience=0
        )


def _in_any_state(where: Document, span: Document) -> Document:
    """The conditions for a list of all entries, by the index on the status: the server merges the lists of all states.

    For that, each alternative must be one state and one range of time.
    """
    if not span:
        return where | {"status": {"$in": _ANY_STATUS}}
    return {"$or": [where | {"status": status} | each for status in _ANY_STATUS for each in span["$or"]]}
