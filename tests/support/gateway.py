"""A gateway in this process: the store, the queue, the engine, the API and the worker.

There are two ways to open one. :func:`assembled` puts the parts together on SQLite, for one workload, on a clock that a
test moves, with a store and a queue that fail when a test says so. :func:`opened` lets the settings decide, as
``holdfast up`` does: embedded, or a cluster.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from holdfast.api import ApiServices
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.app import App
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import LedgerEntry, Status
from holdfast.contracts.ports import Ambient
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.tenants import JOB_SCOPES, TenantLimits
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.execution import Execution, ExecutionOptions
from holdfast.engine.intake import Intake, Receipt
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.engine.schedules import Schedules
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants
from holdfast.engine.waiting import Waiting
from holdfast.features.courier.signatures import sign
from holdfast.installed import installed_features
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from holdfast.wiring import open_system
from holdfast.wiring.features import FRAME_COLLECTIONS
from tests.support.clock import ManualClock, SettableClock
from tests.support.letters import whole_letters
from tests.support.settings import Settings
from tests.support.trouble import Troubled
from tests.support.waiting import eventually
from tests.support.workloads import Parcel, Parcels

GRACE = timedelta(seconds=5)
LEASE = timedelta(seconds=30)
_POLL = timedelta(milliseconds=5)


class CountingIds:
    """Ids that are new, and the same in every run."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"


class Gateway:
    """One system with everything around it.

    ``workload`` is the one that the test is about, and ``keys`` is what the keys of its jobs begin with: a test names a
    job by the rest of its key.
    """

    def __init__(
        self,
        workload: Workload[Any],
        store: Any,
        broker: Any,
        ambient: Ambient,
        *,
        others: Sequence[Workload[Any]] = (),
        keys: str = "",
        database: Database | None = None,
        system: Any = None,
    ) -> None:
        self.workload = workload
        self.store = store
        self.broker = broker
        self.ambient = ambient
        self.clock: Any = ambient.clock
        self.database = database
        self.system: Any = system
        """All parts, if they were opened by settings."""
        self.workloads = system.workloads if system else {each.name: each for each in (workload, *others)}
        self.intake = system.intake if system else Intake(store, broker)
        self.review = system.review if system else Review(store, broker, self.workloads)
        self.cancellation = system.cancellation if system else Cancellation(store, broker)
        self.own_workloads = system.own_workloads if system else tuple(each.name for each in others)
        self.tenants = system.tenants if system else self._tenants()
        self.limits = system.services.limits if system else SenderLimits(store, self.clock, TenantLimits())
        self.waiting = system.waiting if system else Waiting(store)
        every = self.workloads.values()
        self.schedules = system.schedules if system else Schedules(store, self.intake, ambient.clock, every)
        self._keys = keys
        self._workers = count(1)
        self.stopping = asyncio.Event()
        """Set it to tell the worker to stop, and do not wait for it."""

    def _tenants(self) -> Tenants:
        features = [str(scope) for feature in installed_features() for scope in feature.scopes]
        return Tenants(self.store, self.clock, [*features, *JOB_SCOPES], workloads=self.own_workloads)

    # --- sending --------------------------------------------------------------------------------------------

    @cached_property
    def client(self) -> httpx.AsyncClient:
        """A client of the API."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.system.api()), base_url="http://holdfast.test")

    @cached_property
    def services(self) -> ApiServices:
        """What the API is made of, for a test that changes a part of it."""
        return ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            schedules=self.schedules,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
            own_workloads=self.own_workloads,
            cancellation=self.cancellation,
            tenants=self.tenants,
            limits=self.limits,
            waiting=self.waiting,
        )

    async def accept(self, name: str, **changes: Any) -> Receipt:
        """Accept a parcel, as the API does."""
        return await self.intake.accept(self.workload, Parcel(id=name, **changes))

    async def post_event(self, document: Mapping[str, Any], secret: str, **headers: str) -> httpx.Response:
        """Post a courier's signed event."""
        body, timestamp = json.dumps(document).encode(), int(datetime.now(UTC).timestamp())
        signed = {
            "content-type": "application/json",
            "x-signature": sign(secret, timestamp, body),
            "x-signature-timestamp": str(timestamp),
            "x-signature-algorithm": "hmac-sha256",
        }
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post("/v1/events/courier", content=body, headers=signed | named)

    # --- looking --------------------------------------------------------------------------------------------

    async def entry(self, name: str) -> LedgerEntry:
        entry = await self.store.entry(self.workload.name, f"{self._keys}{name}")
        assert entry is not None, f"no entry for {name}"
        assert_counts_its_attempts(entry)
        return entry

    async def status(self, name: str) -> Status:
        return (await self.entry(name)).status

    async def until(self, name: str, status: Status, generation: int | None = None) -> LedgerEntry:
        """Wait until the job is in this state."""

        async def reached() -> LedgerEntry | None:
            entry = await self.entry(name)
            return entry if entry.status is status and generation in {None, entry.generation} else None

        return await eventually(reached)

    async def letters(self, **query: Any) -> list[DeadLetter]:
        return await whole_letters(self.store, LetterQuery(**{"workload": self.workload.name} | query))

    async def queued(self, queue: str, lease: timedelta = LEASE) -> list[tuple[str, str]]:
        """Everything in a queue: id and data. It is taken, and given to nobody until the lease is over."""
        taken = await self.broker.take(queue, 1000, wait=timedelta(0), lease=lease)
        return [(delivery.job_id, delivery.data) for delivery in taken]

    async def shipment(self, shipment_id: str) -> dict[str, Any] | None:
        found = await self.store.get("active_shipments", shipment_id)
        return None if found is None else dict(found)

    # --- working --------------------------------------------------------------------------------------------

    @cached_property
    def maintenance(self) -> Maintenance:
        if self.system is not None:
            return self.system.maintenance()
        every = list(self.workloads.values())
        return Maintenance(self.store, self.broker, every, self.ambient, schedules=self.schedules)

    def execution(self, *, concurrency: int = 20, lease: timedelta = LEASE) -> Execution:
        options = ExecutionOptions(f"worker-{next(self._workers)}", concurrency, lease)
        return Execution(self.workload, self.store, self.broker, self.ambient, options)

    @asynccontextmanager
    async def working(self, *, drain: timedelta = timedelta(seconds=10), **options: Any) -> AsyncIterator[Execution]:
        """Jobs of the workload are worked during the body; at its end the rest is drained. There is no maintenance."""
        execution, stop = self.execution(**options), asyncio.Event()
        with _short_waits():
            running = asyncio.create_task(execution.run(stop, drain))
            try:
                yield execution
            finally:
                stop.set()
                await running

    def start(self) -> None:
        """Start a whole worker: every workload, background tasks and maintenance."""
        self.stopping.clear()
        self._waits = _short_waits()
        self._waits.start()
        self._worker = asyncio.create_task(self.system.worker().run(self.stopping))

    async def stop(self) -> None:
        """Stop the worker as an operator does."""
        self.stopping.set()
        try:
            await self._worker
        finally:
            self._waits.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A whole worker runs during the body."""
        self.start()
        try:
            yield
        finally:
            await self.stop()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """The worker that runs is stopped during the body."""
        await self.stop()
        try:
            yield
        finally:
            self.start()

    async def close(self) -> None:
        if "client" in self.__dict__:
            await self.client.aclose()
        await self.intake.drain()


def _short_waits() -> Any:
    """A worker that is told to stop still waits for its last question to the queue; no test needs a whole second."""
    return patch("holdfast.engine.execution._TAKE_WAIT", timedelta(milliseconds=20))


@asynccontextmanager
async def opened(
    settings: Settings, app: App | None = None, *, workload: str = "courier", keys: str = ""
) -> AsyncIterator[Gateway]:
    """As the settings say: on a file, or on the servers that they name."""
    async with open_system(settings, app) as system:
        about = system.workloads[workload]
        gateway = Gateway(about, system.store, system.broker, system.ambient, keys=keys, system=system)
        yield gateway
        await gateway.close()


@asynccontextmanager
async def assembled(
    workload: Workload[Any] | None = None,
    path: Path | None = None,
    *,
    others: Sequence[Workload[Any]] = (),
    clock: ManualClock | SettableClock | None = None,
    outbox: bool = False,
) -> AsyncIterator[Gateway]:
    """A workload, and ``others`` beside it, on a clock of the test; in memory, or in a file where a path is given.

    Store and queue commit apart, as in a cluster, so that every gap between them is there to be tested. With
    ``outbox`` the store publishes what it records in the same commit, as it does in the embedded deployment.
    """
    workload = workload or Parcels()
    clock = clock or ManualClock()
    database = Database(path, now=clock.ms) if isinstance(clock, ManualClock) else Database(path)
    queues = SqliteBroker(database, poll=_POLL)
    store = SqliteStore(
        database,
        [workload, *others],
        grace=GRACE,
        outbox=queues if outbox else None,
        collections=FRAME_COLLECTIONS,
    )
    ambient = Ambient(clock, CountingIds(), random.Random(1))
    try:
        parts = with_parts(workload, store, queues, ambient, others=others, keys="parcel:", database=database)
        async with parts as gateway:
            yield gateway
    finally:
        await database.close()


@asynccontextmanager
async def with_parts(
    workload: Workload[Any],
    store: Any,
    broker: Any,
    ambient: Ambient,
    **more: Any,
) -> AsyncIterator[Gateway]:
    """A gateway on this store and this queue, which it opens; they fail when a test says so. ``more`` is Gateway's."""
    gateway = Gateway(workload, Troubled(store), Troubled(broker), ambient, **more)
    await gateway.store.open()
    await gateway.broker.open()
    yield gateway
    await gateway.close()


async def lose_the_queue(database: Database) -> None:
    """What a wiped Redis looks like: the jobs are gone, and so is the mark."""

    def wipe(connection: Any) -> None:
        connection.execute("DELETE FROM queue_jobs")
        connection.execute("DELETE FROM queue_settings")

    await database.write(wipe)


def assert_counts_its_attempts(record: LedgerEntry | DeadLetter) -> None:
    """I5: the count, the length of the history and the highest number are one."""
    numbers = [attempt.attempt for attempt in record.attempts]
    assert numbers == list(range(1, record.attempt_count + 1))


def outcomes(entry):
    return [(attempt.outcome.value, attempt.error_code) for attempt in entry.attempts]


async def delayed(gateway, number):
    return (await gateway.broker.depth("parcels-main")).delayed == number


async def empty(gateway):
    depth = await gateway.broker.depth("parcels-main")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)
