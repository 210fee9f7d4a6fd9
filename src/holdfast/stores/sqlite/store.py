"""The embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
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
)
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery, Slice
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.times import duration_ms, from_ms
from holdfast.contracts.transitions import Settled, Settlement
from holdfast.contracts.workload import Workload
from holdfast.sqlite import Database, Outbox
from holdfast.stores.folding import writes_of

from . import entries, ledger, letters, schema
from .records import RecordTables
from .settling import settle


class SqliteStore:
    """Ledger, dead letters and records in one SQLite file; implements :class:`holdfast.contracts.ports.Store`.

    ``grace``: an entry that could be taken and stays untouched for this long is reported by ``due``.
    ``outbox``: the queue, if it is in the same file. New entries are then published by the commit that records them.
    ``collections``: the collections that belong to no workload.
    """

    def __init__(
        self,
        database: Database,
        workloads: Sequence[Workload[Any]],
        *,
        grace: timedelta = timedelta(seconds=5),
        outbox: Outbox | None = None,
        collections: Sequence[Collection] = (),
    ) -> None:
        schema.check_names(workloads, collections)
        self._database = database
        self._workloads = tuple(workloads)
        self._grace = duration_ms(grace)
        self._outbox = outbox
        self.publishes = outbox is not None
        """See :attr:`holdfast.contracts.ports.Ledger.publishes`."""
        self._queues = {workload.name: workload.queue for workload in workloads}
        self._job_names = {workload.name: workload.job_name or workload.name for workload in workloads}
        self._collections = tuple(collections)
        self._tables = RecordTables([*(each for workload in workloads for each in workload.collections), *collections])
        self._indexed = {workload.name: frozenset(workload.indexed_labels) for workload in workloads}

    async def open(self) -> None:
        """Migrate the tables to what this version and these workloads need."""
        await self._database.migrate(schema.COMPONENT, schema.MIGRATIONS)
        await self._database.write(lambda connection: schema.prepare(connection, self._workloads, self._collections))

    # --- the ledger ---------------------------------------------------------------------------------------

    async def record(self, entries: Sequence[NewEntry]) -> list[Recorded]:
        """See :meth:`holdfast.contracts.ports.Ledger.record`."""
        recorded = await self._database.write(lambda c: self._record(c, entries))
        if self._outbox is not None:
            for name in {entry.workload for entry in entries}:
                self._outbox.added(self._queues[name])
        return recorded

    def _record(self, connection: sqlite3.Connection, entries: Sequence[NewEntry]) -> list[Recorded]:
        now = self._database.now()
        recorded = ledger.record(connection, now, self._grace, entries, tables=self._tables, queued=self.publishes)
        if self._outbox is None:
            return recorded
        jobs: dict[str, list[QueueJob]] = {}
        for entry, answer in zip(entries, recorded, strict=True):
            if answer.queued:
                job = QueueJob(entry.job_id, entry.body, self._job_names[entry.workload], entry.priority, entry.delay)
                jobs.setdefault(self._queues[entry.workload], []).append(job)
        for queue, batch in jobs.items():
            self._outbox.add(connection, queue, batch)
        return recorded

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
        now = self._database.now
        return await self._database.write(
            lambda c: ledger.claim(c, now(), workload, job_ids, worker=worker, lease=lease, max_attempts=max_attempts),
        )

    async def renew(self, workload: str, leases: Sequence[Lease], lease: timedelta) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.renew`."""
        now = self._database.now
        return await self._database.write(lambda c: ledger.renew(c, now(), workload, leases, lease), durable=False)

    async def note_progress(self, workload: str, progress: Sequence[tuple[Lease, Mapping[str, Any]]]) -> None:
        """See :meth:`holdfast.contracts.ports.Ledger.note_progress`."""
        now = self._database.now
        await self._database.write(lambda c: ledger.note_progress(c, now(), workload, progress), durable=False)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See :meth:`holdfast.contracts.ports.Ledger.settle`."""
        again: set[str] = set()

        def work(connection: sqlite3.Connection) -> list[Settled]:
            answers = settle(connection, self._database.now(), self._grace, self._tables, settlements)
            if self._outbox is not None:
                written = [
                    settlement.acknowledgement
                    for settlement, answer in zip(settlements, answers, strict=True)
                    if settlement.acknowledgement is not None and not answer.stale
                ]
                if written:
                    again.update(self._outbox.acknowledge(connection, written))
            return answers

        settled = await self._database.write(work)
        if self._outbox is not None:
            for queue in again:
                self._outbox.added(queue)
        return settled

    async def due(self, workload: str, limit: int, *, again_after: timedelta) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.due`."""
        now = self._database.now
        # Read first: the sweep of an idle system must not take the write lock.
        if not await self._database.read(lambda c: ledger.any_due(c, now(), workload)):
            return []
        return await self._database.write(lambda c: ledger.due(c, now(), workload, limit, again_after), durable=False)

    async def unsettled(self, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.unsettled`."""
        now = self._database.now
        return await self._database.read(lambda c: ledger.unsettled(c, now(), workload, job_ids))

    async def overdue(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.overdue`."""
        now = self._database.now
        return await self._database.read(lambda c: ledger.overdue(c, now(), workload, limit))

    async def cancel(self, workload: str, job_ids: Sequence[str], *, running: bool = False) -> list[Cancelled]:
        """See :meth:`holdfast.contracts.ports.Ledger.cancel`."""
        now = self._database.now
        return await self._database.write(lambda c: entries.cancel(c, now(), workload, job_ids, running=running))

    async def asked_to_stop(self, workload: str, leases: Sequence[Lease]) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.asked_to_stop`."""
        return await self._database.read(lambda c: entries.asked_to_stop(c, workload, leases))

    async def queue_places(self, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
        """See :meth:`holdfast.contracts.ports.Ledger.queue_places`."""
        return await self._database.read(lambda c: entries.queue_places(c, workload, fairness_keys))

    async def count_unsettled(self, prefix: str, most: int) -> int:
        """See :meth:`holdfast.contracts.ports.Ledger.count_unsettled`."""
        return await self._database.read(lambda c: entries.count_unsettled(c, self._queues, prefix, most))

    async def redact(self, workload: str, bodies: Mapping[str, str]) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.redact`."""
        return await self._database.write(lambda c: entries.redact(c, workload, bodies))

    async def entry(self, workload: str, key: str) -> LedgerEntry | None:
        """See :meth:`holdfast.contracts.ports.Ledger.entry`."""
        return await self._database.read(lambda c: entries.read(c, workload, key))

    async def ended(self, workload: str, keys: Sequence[str]) -> list[str]:
        """See :meth:`holdfast.contracts.ports.Ledger.ended`."""
        return await self._database.read(lambda c: entries.ended(c, workload, keys))

    async def find(self, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
        """See :meth:`holdfast.contracts.ports.Ledger.find`."""
        indexed = self._indexed.get(query.workload, frozenset())
        return await self._database.read(lambda c: entries.find(c, query, page, indexed))

    async def counts(self, workload: str) -> Mapping[str, int]:
        """See :meth:`holdfast.contracts.ports.Ledger.counts`."""
        return await self._database.read(lambda c: entries.counts(c, workload))

    async def prune(self, limit: int) -> Pruned:
        """See :meth:`holdfast.contracts.ports.Ledger.prune`."""
        now = self._database.now
        return await self._database.write(lambda c: ledger.prune(c, now(), self._tables, limit))

    # --- dead letters -------------------------------------------------------------------------------------

    async def letter(self, letter_id: str) -> DeadLetter | None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letter`."""
        return await self._database.read(lambda c: letters.read(c, letter_id))

    async def letters(self, query: LetterQuery, page: Page) -> Slice[ListedLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters`."""
        return await self._database.read(lambda c: letters.find(c, query, page))

    async def count_letters(self, query: LetterQuery) -> int:
        """See :meth:`holdfast.contracts.ports.DeadLetters.count_letters`."""
        return await self._database.read(lambda c: letters.count(c, query))

    async def review(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.review`."""
        return await self._step(letter_ids, ReviewStatus.REVIEWED, actor, reason)

    async def close(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.close`."""
        return await self._step(letter_ids, ReviewStatus.CLOSED, actor, reason)

    async def _step(self, letter_ids: Sequence[str], end: ReviewStatus, actor: str, reason: str) -> list[str]:
        now = self._database.now
        return await self._database.write(
            lambda c: letters.step(c, now(), letter_ids, end, actor=actor, reason=reason),
        )

    async def replay(
        self,
        replays: Sequence[tuple[str, NewEntry | None]],
        *,
        actor: str,
        reason: str,
    ) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.replay`."""
        now = self._database.now
        return await self._database.write(
            lambda c: letters.replay(c, now(), self._grace, self._tables, replays, actor=actor, reason=reason),
        )

    async def letters_to_publish(self, workload: str, limit: int) -> list[DeadLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_publish`."""
        return await self._database.read(lambda c: letters.letters_to_publish(c, workload, limit))

    async def mark_published(self, letter_ids: Sequence[str], queue: str) -> bool:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_published`."""
        return await self._database.write(lambda c: letters.mark_published(c, letter_ids, queue), durable=False)

    async def letters_to_unpublish(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_unpublish`."""
        return await self._database.read(lambda c: letters.letters_to_unpublish(c, workload, limit))

    async def mark_unpublished(self, letter_ids: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_unpublished`."""
        await self._database.write(lambda c: letters.mark_unpublished(c, letter_ids), durable=False)

    # --- records ------------------------------------------------------------------------------------------

    async def apply(self, effects: Sequence[Effect]) -> None:
        """See :meth:`holdfast.contracts.ports.Records.apply`."""
        now = self._database.now
        await self._database.write(lambda c: self._tables.apply(c, now(), [("", writes_of("", effects))]))

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """See :meth:`holdfast.contracts.ports.Records.get`."""
        return await self._database.read(lambda c: self._tables.get(c, collection, key))

    async def find_records(self, query: RecordQuery, page: Page) -> Slice[Mapping[str, Any]]:
        """See :meth:`holdfast.contracts.ports.Records.find_records`."""
        return await self._database.read(lambda c: self._tables.find(c, query, page))

    # --- the store itself ---------------------------------------------------------------------------------

    async def detect_queue_reset(self, epoch: str) -> bool:
        """See :meth:`holdfast.contracts.ports.Store.detect_queue_reset`."""
        now = self._database.now
        if await self._database.read(ledger.known_queue) == epoch:
            return False
        return await self._database.write(lambda c: ledger.detect_queue_reset(c, now(), epoch))

    async def now(self) -> datetime:
        """See :meth:`holdfast.contracts.ports.Store.now`."""
        return from_ms(self._database.now())

    async def truncate_log(self) -> bool:
        """See :meth:`holdfast.contracts.ports.Store.truncate_log`."""
        return await self._database.truncate_log()

    async def ping(self) -> None:
        """See :meth:`holdfast.contracts.ports.Store.ping`."""
        await self._database.write(lambda c: c.execute("SELECT 1").fetchone(), durable=False)
