"""The embedded broker: queues in the same SQLite file as the ledger.

A job is ``ready``, ``delayed`` until ``due_at``, or ``leased`` until ``due_at`` under a token. Finished and failed
jobs leave the table: the ledger keeps their history. Nothing here needs an ``fsync`` of its own, because maintenance
rebuilds the queue from the ledger. A durable commit of the ledger also makes earlier writes of the queue durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.queues import (
    Acknowledgement,
    Again,
    Delivery,
    Depth,
    History,
    Permits,
    Presence,
    QueueJob,
    RateLimit,
    WorkedElsewhere,
)
from holdfast.contracts.times import duration_ms, from_ms
from holdfast.sqlite import Database, Migration
from holdfast.sqlite.database import one, rows_to_json, to_json
from holdfast.sqlite.executors import Work

from .sqlite_limits import PERMITS_AND_PLACES, SharedPermits, Window, reserve

Result = TypeVar("Result")

_COMPONENT: Final = "broker"

_MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """
        CREATE TABLE queue_jobs (
            seq INTEGER PRIMARY KEY,
            queue TEXT NOT NULL,
            job_id TEXT NOT NULL,
            name TEXT NOT NULL,
            data TEXT NOT NULL,
            priority INTEGER NOT NULL,
            state TEXT NOT NULL,
            due_at INTEGER,
            token TEXT,
            reason TEXT
        )
        """,
        "CREATE UNIQUE INDEX queue_job ON queue_jobs (queue, job_id)",
        "CREATE INDEX queue_ready ON queue_jobs (queue, priority, seq) WHERE state = 'ready'",
        "CREATE INDEX queue_delayed ON queue_jobs (queue, due_at) WHERE state = 'delayed'",
        "CREATE INDEX queue_leased ON queue_jobs (queue, due_at) WHERE state = 'leased'",
        "CREATE TABLE queue_settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ),
    PERMITS_AND_PLACES,
    ("ALTER TABLE queue_jobs ADD COLUMN added_at INTEGER",),
)

_PUBLISH: Final = """
INSERT INTO queue_jobs (queue, job_id, name, data, priority, state, due_at, added_at)
SELECT :queue, value ->> 0, value ->> 1, value ->> 2, value ->> 3,
       iif(value ->> 4 > 0, 'delayed', 'ready'), iif(value ->> 4 > 0, :now + (value ->> 4), NULL), :now
FROM json_each(:jobs) WHERE true
ON CONFLICT DO NOTHING
"""

_PROMOTE: Final = """
UPDATE queue_jobs SET state = 'ready', due_at = NULL WHERE queue = :queue AND state = 'delayed' AND due_at <= :now
"""

_LEASE: Final = """
UPDATE queue_jobs SET state = 'leased', token = :token, due_at = :until
WHERE seq IN (SELECT seq FROM queue_jobs WHERE queue = :queue AND state = 'ready' ORDER BY priority, seq LIMIT :limit)
"""

_LEASED: Final = """
SELECT json_group_array(json_array(job_id, data, added_at)) FROM (
    SELECT job_id, data, coalesce(added_at, :now) AS added_at FROM queue_jobs
    WHERE queue = :queue AND state = 'leased' AND due_at = :until AND token = :token
    ORDER BY priority, seq)
"""
"""Jobs of an older version, and rows of another program, have no ``added_at``: the present time is used."""

_PAUSED: Final = "SELECT EXISTS (SELECT 1 FROM queue_settings WHERE name = 'paused:' || :queue)"

_NEXT: Final = """
SELECT CASE
    WHEN EXISTS (SELECT 1 FROM queue_settings WHERE name = 'paused:' || :queue) THEN NULL
    WHEN EXISTS (SELECT 1 FROM queue_jobs WHERE queue = :queue AND state = 'ready') THEN 0
    ELSE (SELECT max(0, due_at - :now) FROM queue_jobs WHERE queue = :queue AND state = 'delayed'
          ORDER BY due_at LIMIT 1)
END
"""

_REMOVE_LEASED: Final = """
DELETE FROM queue_jobs WHERE seq IN (
    SELECT q.seq FROM json_each(:rows) AS r
    CROSS JOIN queue_jobs AS q ON q.queue = r.value ->> 0 AND q.job_id = r.value ->> 1
    WHERE q.state = 'leased' AND q.token = r.value ->> 2)
"""

_RELEASE: Final = """
UPDATE queue_jobs
SET state = iif(r.after > 0, 'delayed', 'ready'), due_at = iif(r.after > 0, :now + r.after, NULL), token = NULL,
    data = coalesce(r.data, queue_jobs.data), reason = coalesce(r.reason, queue_jobs.reason)
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS job_id, value ->> 2 AS token, value ->> 3 AS after,
             value ->> 4 AS data, value ->> 5 AS reason FROM json_each(:rows)) AS r
WHERE queue_jobs.queue = r.queue AND queue_jobs.job_id = r.job_id AND queue_jobs.state = 'leased'
  AND queue_jobs.token = r.token
"""

_RENEW: Final = """
UPDATE queue_jobs SET due_at = :until
FROM (SELECT value ->> 0 AS queue, value ->> 1 AS job_id, value ->> 2 AS token FROM json_each(:rows)) AS r
WHERE queue_jobs.queue = r.queue AND queue_jobs.job_id = r.job_id AND queue_jobs.state = 'leased'
  AND queue_jobs.token = r.token
"""

_HELD: Final = """
SELECT json_group_array(r.key) FROM json_each(:rows) AS r
CROSS JOIN queue_jobs AS q ON q.queue = r.value ->> 0 AND q.job_id = r.value ->> 1
WHERE q.state = 'leased' AND q.token = r.value ->> 2
"""

_ANY_STALLED: Final = """
SELECT EXISTS (SELECT 1 FROM queue_jobs WHERE queue = :queue AND state = 'leased' AND due_at <= :now)
"""

_RECOVER: Final = """
UPDATE queue_jobs SET state = 'ready', due_at = NULL, token = NULL
WHERE queue = :queue AND state = 'leased' AND due_at <= :now
"""

_REMOVE: Final = """
DELETE FROM queue_jobs
WHERE queue = :queue AND state <> 'leased' AND job_id IN (SELECT value FROM json_each(:ids))
"""

_PRESENT: Final = """
SELECT json_group_array(job_id) FROM queue_jobs WHERE queue = :queue AND job_id IN (SELECT value FROM json_each(:ids))
"""

# Each count reads a partial index, and stops at the limit. SQLite takes -1 for no limit.
_DEPTH: Final = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM queue_jobs WHERE queue = :queue AND state = 'ready' LIMIT :most)),
       (SELECT count(*) FROM (SELECT 1 FROM queue_jobs WHERE queue = :queue AND state = 'delayed' LIMIT :most)),
       (SELECT count(*) FROM (SELECT 1 FROM queue_jobs WHERE queue = :queue AND state = 'leased' LIMIT :most))
"""

_PAUSE: Final = "INSERT INTO queue_settings VALUES ('paused:' || ?, 'yes') ON CONFLICT DO NOTHING"
_PAUSE_BECAUSE: Final = "INSERT INTO queue_settings VALUES ('paused-because:' || ?, ?) ON CONFLICT DO NOTHING"
_PAUSED_BECAUSE: Final = "SELECT value FROM queue_settings WHERE name = 'paused-because:' || :queue"
_RESUME: Final = "DELETE FROM queue_settings WHERE name IN ('paused:' || :queue, 'paused-because:' || :queue)"

# The stored name 'incarnation' is older than our word: it is the queue's epoch.
_SET_EPOCH: Final = "INSERT INTO queue_settings VALUES ('incarnation', ?) ON CONFLICT DO NOTHING"
_EPOCH: Final = "SELECT value FROM queue_settings WHERE name = 'incarnation'"


class SqliteBroker:
    """Queues in one SQLite file; implements :class:`holdfast.contracts.ports.Broker`.

    A job that this process publishes wakes its own waiting takers at once; jobs from other processes are noticed
    within ``poll``.
    """

    def __init__(self, database: Database, *, poll: timedelta = timedelta(milliseconds=100)) -> None:
        self._database = database
        self._poll = poll.total_seconds()
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def open(self) -> None:
        """Migrate the tables to what this version needs."""
        await self._database.migrate(_COMPONENT, _MIGRATIONS)

    async def publish(self, queue: str, jobs: Sequence[QueueJob]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.publish`."""
        await self._write(lambda connection: self.add(connection, queue, jobs))
        self.added(queue)

    def add(self, connection: sqlite3.Connection, queue: str, jobs: Sequence[QueueJob]) -> None:
        """See :meth:`holdfast.sqlite.Outbox.add`."""
        rows = [(job.job_id, job.name, job.data, job.priority, duration_ms(job.delay)) for job in jobs]
        connection.execute(_PUBLISH, {"queue": queue, "jobs": rows_to_json(rows), "now": self._database.now()})

    def added(self, queue: str) -> None:
        """See :meth:`holdfast.sqlite.Outbox.added`."""
        for event in self._waiting.get(queue, ()):
            event.set()

    async def take(
        self,
        queue: str,
        limit: int,
        *,
        wait: timedelta,
        lease: timedelta,
        rate: RateLimit | None = None,
    ) -> list[Delivery]:
        """See :meth:`holdfast.contracts.ports.Broker.take`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        wake = asyncio.Event()
        self._waiting.setdefault(queue, set()).add(wake)
        try:
            while True:
                wake.clear()
                # Read first: an idle worker must not take the write lock ten times a second.
                next_job = await self._read(lambda c: one(c, _NEXT, {"queue": queue, "now": self._database.now()}))
                if next_job == 0:
                    deliveries = await self._write(lambda c: self._lease(c, queue, limit, lease, rate))
                    if deliveries:
                        return deliveries
                left = end - loop.time()
                if left <= 0:
                    return []
                pause = min(left, self._poll, next_job / 1000 if next_job else self._poll)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await wake.wait()
        finally:
            self._waiting[queue].discard(wake)

    def _lease(
        self,
        connection: sqlite3.Connection,
        queue: str,
        limit: int,
        lease: timedelta,
        rate: RateLimit | None,
    ) -> list[Delivery]:
        now = self._database.now()
        token = uuid.uuid4().hex
        parameters: dict[str, Any] = {"queue": queue, "now": now, "until": now + duration_ms(lease)}
        parameters |= {"token": token, "limit": limit}
        if one(connection, _PAUSED, parameters):
            return []
        window = Window(connection, queue, rate, now) if rate is not None else None
        if window is not None:
            parameters["limit"] = min(limit, window.left)
        connection.execute(_PROMOTE, parameters)
        connection.execute(_LEASE, parameters)
        leased = json.loads(one(connection, _LEASED, parameters))
        if window is not None and leased:
            window.count(len(leased))
        return [Delivery(queue, job_id, data, token, sent_at=from_ms(added)) for job_id, data, added in leased]

    async def settle(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.settle`."""
        for queue in await self._write(lambda connection: self.acknowledge(connection, acknowledgements)):
            self.added(queue)

    def acknowledge(self, connection: sqlite3.Connection, acknowledgements: Sequence[Acknowledgement]) -> set[str]:
        """See :meth:`holdfast.sqlite.database.Outbox.acknowledge`."""
        ended, again = [], []
        for each in acknowledgements:
            lease = (each.delivery.queue, each.delivery.job_id, each.delivery.token)
            if isinstance(each.handling, Again):
                again.append((*lease, duration_ms(each.handling.after), each.handling.data, each.handling.reason))
            else:
                ended.append(lease)

        if ended:
            connection.execute(_REMOVE_LEASED, {"rows": to_json(ended)})
        if again:
            connection.execute(_RELEASE, {"rows": to_json(again), "now": self._database.now()})
        return {row[0] for row in again}

    async def renew(self, deliveries: Sequence[Delivery], lease: timedelta) -> list[Delivery]:
        """See :meth:`holdfast.contracts.ports.Broker.renew`."""
        rows = to_json([(each.queue, each.job_id, each.token) for each in deliveries])

        def work(connection: sqlite3.Connection) -> str:
            until = self._database.now() + duration_ms(lease)
            connection.execute(_RENEW, {"rows": rows, "until": until})
            return str(one(connection, _HELD, {"rows": rows}))

        held = set(json.loads(await self._write(work)))
        return [each for position, each in enumerate(deliveries) if position not in held]

    async def recover(self, queue: str) -> int:
        """See :meth:`holdfast.contracts.ports.Broker.recover`."""

        def parameters() -> dict[str, Any]:
            return {"queue": queue, "now": self._database.now()}

        if not await self._read(lambda c: one(c, _ANY_STALLED, parameters())):
            return 0
        recovered = await self._write(lambda c: c.execute(_RECOVER, parameters()).rowcount)
        self.added(queue)
        return recovered

    async def remove(self, queue: str, job_ids: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.remove`."""
        await self._write(lambda c: c.execute(_REMOVE, {"queue": queue, "ids": to_json(list(job_ids))}))

    async def look_up(self, queue: str, job_ids: Sequence[str]) -> list[Presence | WorkedElsewhere]:
        """See :meth:`holdfast.contracts.ports.Broker.look_up`. Only Holdfast works on this queue."""
        ids = to_json(list(job_ids))
        held = set(json.loads(await self._read(lambda c: one(c, _PRESENT, {"queue": queue, "ids": ids}))))
        return [Presence.OPEN if job_id in held else Presence.ABSENT for job_id in job_ids]

    async def history(self, queue: str, after: str | None = None) -> History:
        """See :meth:`holdfast.contracts.ports.Broker.history`. It is empty: the ledger knows all that happens here."""
        del queue, after
        return History()

    async def depth(self, queue: str, *, most: int | None = None) -> Depth:
        """See :meth:`holdfast.contracts.ports.Broker.depth`."""
        limits = {"queue": queue, "most": -1 if most is None else most}

        def work(connection: sqlite3.Connection) -> Depth:
            ready, delayed, leased = connection.execute(_DEPTH, limits).fetchone()
            paused = bool(one(connection, _PAUSED, {"queue": queue}))
            why = one(connection, _PAUSED_BECAUSE, {"queue": queue})
            return Depth(ready, delayed, leased, paused, why)

        return await self._read(work)

    async def pause(self, queue: str, *, reason: str | None = None) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.pause`."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_PAUSE, (queue,))
            if reason:  # the first reason stays: later reasons are often its consequences
                connection.execute(_PAUSE_BECAUSE, (queue, reason))

        await self._write(work)

    async def resume(self, queue: str) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.resume`."""
        await self._write(lambda c: c.execute(_RESUME, {"queue": queue}))
        self.added(queue)

    async def acquire(self, name: str, rate: RateLimit, wanted: int, *, hold: timedelta) -> Permits:
        """See :meth:`holdfast.contracts.ports.Broker.acquire`."""
        # Read first: a caller that waits for a permit must not take the write lock for nothing.
        free, wait = await self._read(lambda c: SharedPermits(c, name, rate, self._database.now()).count_free())
        if free == 0 or wanted <= 0:
            return Permits((), wait)

        def work(connection: sqlite3.Connection) -> Permits:
            names = [uuid.uuid4().hex for _ in range(min(wanted, free))]
            return SharedPermits(connection, name, rate, self._database.now()).acquire(names, hold)

        return await self._write(work)

    async def release(self, name: str, rate: RateLimit, permits: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.release`."""
        await self._write(lambda c: SharedPermits(c, name, rate, self._database.now()).release(permits))

    async def reserve(self, name: str, rate: RateLimit, job_ids: Sequence[str]) -> list[timedelta]:
        """See :meth:`holdfast.contracts.ports.Broker.reserve`."""
        return await self._write(lambda c: reserve(c, name, rate, job_ids, self._database.now()))

    async def epoch(self) -> str:
        """See :meth:`holdfast.contracts.ports.Broker.epoch`."""
        epoch = await self._read(lambda c: one(c, _EPOCH))
        if epoch is None:
            fresh = uuid.uuid4().hex

            def work(connection: sqlite3.Connection) -> str:
                connection.execute(_SET_EPOCH, (fresh,))
                return str(one(connection, _EPOCH))

            epoch = await self._write(work)
        return str(epoch)

    async def ping(self) -> None:
        """See :meth:`holdfast.contracts.ports.Broker.ping`."""
        await self._read(lambda c: one(c, "SELECT 1"))

    async def _write(self, work: Work[Result]) -> Result:
        try:
            return await self._database.write(work, durable=False)
        except StoreUnavailable as error:
            raise BrokerUnavailable(error.message) from error

    async def _read(self, work: Work[Result]) -> Result:
        try:
            return await self._database.read(work)
        except StoreUnavailable as error:
            raise BrokerUnavailable(error.message) from error
