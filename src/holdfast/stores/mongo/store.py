"""The cluster's store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.effects import Collection, Effect
from holdfast.contracts.ledger import (
    Cancelled,
    ClaimResult,
    DueEntry,
    Lease,
    LedgerEntry,
    NewEntry,
    Pruned,
    QueuePlaces,
    Recorded,
    Unrecorded,
)
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery, Slice
from holdfast.contracts.transitions import Settled, Settlement
from holdfast.contracts.workload import Workload

from . import (
    cancelling,
    claiming,
    fairness,
    importing,
    letters,
    reading,
    recording,
    redacting,
    replaying,
    settling,
    sweeping,
)
from .facts import facts
from .link import Link, rights_explained
from .migrating import Schema
from .records import RecordCollections
from .schema import FACTS
from .workload_collections import AllCollections

_PING: Final = 3.0


class MongoStore:
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
        self._link = Link(uri, database)
        self._grace = grace
        self._schema = Schema(self._link, workloads, collections)
        self._collections = AllCollections(self._link, workloads)
        kinds = [*collections, *(each for workload in workloads for each in workload.collections)]
        self._record_collections = RecordCollections(self._link, kinds)

    async def open(self) -> None:
        """Find the server and check it; create missing collections.

        Raises :class:`ConfigurationError` when a collection with documents lacks an index that a guarantee depends on
        (``holdfast migrate`` creates it), and :class:`StoreUnavailable` when no server answers.
        """
        await self._link.open()
        with rights_explained():
            await self._schema.prepare()

    async def disconnect(self) -> None:
        """Close the connections. The name is not ``close``, because that method closes dead letters."""
        await self._link.close()

    async def migrate(self) -> list[str]:
        """Create collections and indexes that are missing or different, and import another system's documents.

        Returns what was done, one sentence each.
        """
        await self._link.open()
        with rights_explained():
            done = await self._schema.migrate()
            return done + await importing.import_all(self._link, self._collections, self._record_collections)

    async def missing(self) -> list[str]:
        """What ``migrate`` would create, one sentence each."""
        await self._link.open()
        with rights_explained():
            return await self._schema.missing()

    async def foreign(self) -> list[str]:
        """Another system's documents in our collections, and what happens with them; for ``holdfast doctor``."""
        with rights_explained():
            return await importing.remaining(self._link, self._collections)

    async def foreign_places(self) -> list[str]:
        """The collections that have documents of another system; a fast check."""
        return await importing.foreign_collections(self._link, self._collections)

    async def facts(self) -> Mapping[str, str]:
        """Facts about the server, and how many of our collections it has, for ``holdfast doctor``."""
        return await facts(self._link, self._schema.collections)

    # --- the ledger ---------------------------------------------------------------------------------------

    @property
    def publishes(self) -> bool:
        """See :attr:`holdfast.contracts.ports.Ledger.publishes`."""
        return False

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """See :meth:`holdfast.contracts.ports.Ledger.record`."""
        return await recording.record(self._link, self._collections, self._record_collections, self._grace, entries)

    async def claim(
        self,
        workload: str,
        job_ids: Sequence[str],
        *,
        worker: str,
        lease: timedelta,
        max_attempts: int,
    ) -> list[ClaimResult]:
        """See :meth:`holdfast.contracts.ports.Ledger.claim`."""
        collections = self._collections.get(workload)
        if collections is None:
            return [Unrecorded(job_id) for job_id in job_ids]
        return await claiming.claim(
            self._link, collections.entries, job_ids, worker=worker, lease=lease, max_attempts=max_attempts
        )

    async def renew(self, workload: str, leases: Sequence[Lease], lease: timedelta) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.renew`."""
        collections = self._collections.get(workload)
        return (
            list(leases)
            if collections is None
            else await claiming.renew(self._link, collections.entries, leases, lease)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See :meth:`holdfast.contracts.ports.Ledger.settle`."""
        return await settling.settle(self._link, self._collections, self._record_collections, self._grace, settlements)

    async def due(self, workload: str, limit: int, *, again_after: timedelta) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.due`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await sweeping.due(self._link, collections, limit, again_after)

    async def unsettled(self, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.unsettled`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await sweeping.unsettled(self._link, collections.entries, job_ids)

    async def overdue(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.overdue`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await sweeping.overdue(self._link, collections.entries, limit)

    async def cancel(self, workload: str, job_ids: Sequence[str], *, running: bool = False) -> list[Cancelled]:
        """See :meth:`holdfast.contracts.ports.Ledger.cancel`."""
        collections = self._collections.get(workload)
        if collections is None:
            return [Cancelled.TOO_LATE] * len(job_ids)
        return await cancelling.cancel(self._link, collections.entries, job_ids, running=running)

    async def asked_to_stop(self, workload: str, leases: Sequence[Lease]) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.asked_to_stop`."""
        return await cancelling.asked_to_stop(self._link, self._collections.of(workload).entries, leases)

    async def queue_places(self, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
        """See :meth:`holdfast.contracts.ports.Ledger.queue_places`."""
        collections = self._collections.get(workload)
        return (
            QueuePlaces()
            if collections is None
            else await fairness.queue_places(self._link, collections.entries, fairness_keys)
        )

    async def redact(self, workload: str, bodies: Mapping[str, str]) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.redact`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await redacting.redact(self._link, collections, bodies)

    async def entry(self, workload: str, key: str) -> LedgerEntry | None:
        """See :meth:`holdfast.contracts.ports.Ledger.entry`."""
        collections = self._collections.get(workload)
        return None if collections is None else await reading.entry(self._link, collections, key)

    async def find(self, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.find`."""
        collections = self._collections.get(query.workload)
        return Slice([]) if collections is None else await reading.find(self._link, collections, query, page)

    async def counts(self, workload: str) -> Mapping[str, int]:
        """See :meth:`holdfast.contracts.ports.Ledger.counts`."""
        collections = self._collections.get(workload)
        return {} if collections is None else await reading.counts(self._link, collections)

    async def prune(self, limit: int) -> Pruned:
        """See :meth:`holdfast.contracts.ports.Ledger.prune`."""
        return await sweeping.prune(self._link, self._collections, self._record_collections, limit)

    # --- dead letters -------------------------------------------------------------------------------------

    async def letter(self, letter_id: str) -> DeadLetter | None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letter`."""
        return await letters.read(self._link, self._collections, letter_id)

    async def letters(self, query: LetterQuery, page: Page) -> Slice[DeadLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters`."""
        return await letters.find(self._link, self._collections, query, page)

    async def count_letters(self, query: LetterQuery) -> int:
        """See :meth:`holdfast.contracts.ports.DeadLetters.count_letters`."""
        return await letters.count(self._link, self._collections, query)

    async def review(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.review`."""
        await importing.import_letters(self._link, self._collections, letter_ids)
        return await letters.step(
            self._link, self._collections, letter_ids, ReviewStatus.REVIEWED, actor=actor, reason=reason
        )

    async def close(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.close`."""
        await importing.import_letters(self._link, self._collections, letter_ids)
        return await letters.step(
            self._link, self._collections, letter_ids, ReviewStatus.CLOSED, actor=actor, reason=reason
        )

    async def replay(
        self,
        replays: Sequence[tuple[str, NewEntry | None]],
        *,
        actor: str,
        reason: str,
    ) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.replay`."""
        await importing.import_letters(self._link, self._collections, [letter_id for letter_id, _ in replays])
        return await replaying.replay(
            self._link, self._collections, self._record_collections, self._grace, replays, actor=actor, reason=reason
        )

    async def letters_to_publish(self, workload: str, limit: int) -> list[DeadLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_publish`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await letters.letters_to_publish(self._link, collections, limit)

    async def mark_published(self, letter_ids: Sequence[str], queue: str) -> bool:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_published`."""
        return await letters.mark_published(self._link, self._collections, letter_ids, queue)

    async def letters_to_unpublish(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_unpublish`."""
        collections = self._collections.get(workload)
        return [] if collections is None else await letters.letters_to_unpublish(self._link, collections, limit)

    async def mark_unpublished(self, letter_ids: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_unpublished`."""
        await letters.mark_unpublished(self._link, self._collections, letter_ids)

    # --- records ------------------------------------------------------------------------------------------

    async def apply(self, effects: Sequence[Effect]) -> None:
        """See :meth:`holdfast.contracts.ports.Records.apply`."""
        await self._record_collections.commit(effects)

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """See :meth:`holdfast.contracts.ports.Records.get`."""
        return await self._record_collections.get(collection, key)

    async def find_records(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """See :meth:`holdfast.contracts.ports.Records.find_records`."""
        return await self._record_collections.find(query, page)

    # --- the store itself ---------------------------------------------------------------------------------

    async def detect_queue_reset(self, epoch: str) -> bool:
        """See :meth:`holdfast.contracts.ports.Store.detect_queue_reset`."""
        return await sweeping.detect_queue_reset(self._link, self._collections, epoch)

    async def now(self) -> datetime:
        """See :meth:`holdfast.contracts.ports.Store.now`."""
        return await self._link.now()

    async def ping(self) -> None:
        """See :meth:`holdfast.contracts.ports.Store.ping`."""
        # A write that changes nothing. The server still waits for a majority, as for every write.
        facts = self._link.collection(FACTS)
        await self._link.run(
            lambda: facts.update_one({"_id": "ping"}, {"$set": {"value": True}}, upsert=True), seconds=_PING, patience=0
        )
