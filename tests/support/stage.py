"""The real engine over the real embedded store and queue, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import LedgerEntry, Status
from holdfast.contracts.ports import Ambient
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.contracts.workload import Workload
from holdfast.engine.execution import Execution, ExecutionOptions
from holdfast.engine.intake import Intake, Receipt
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.review import Review
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.support.clock import ManualClock
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


@dataclass
class Stage:
    """One workload with everything around it."""

    workload: Workload[Any]
    clock: ManualClock
    database: Database
    store: Any
    broker: Any
    intake: Intake
    review: Review
    maintenance: Maintenance
    ambient: Ambient
    workers: count = field(default_factory=lambda: count(1))

    async def accept(self, name: str, **changes: Any) -> Receipt:
        return await self.intake.accept(self.workload, Parcel(id=name, **changes))

    async def entry(self, name: str) -> LedgerEntry:
        entry = await self.store.entry(self.workload.name, f"parcel:{name}")
        assert entry is not None, f"no entry for {name}"
        assert_counts_its_attempts(entry)
        return entry

    async def status(self, name: str) -> Status:
        return (await self.entry(name)).status

    async def until(self, name: str, status: Status) -> LedgerEntry:
        """Wait until the job is in this state."""

        async def reached() -> LedgerEntry | None:
            entry = await self.entry(name)
            return entry if entry.status is status else None

        return await eventually(reached)

    async def letters(self, **query: Any) -> list[DeadLetter]:
        return (await self.store.letters(LetterQuery(**query), Page())).items

    async def queued(self, queue: str) -> list[tuple[str, str]]:
        """Everything in a queue: id and data. It is taken, and given to nobody."""
        taken = await self.broker.take(queue, 1000, wait=timedelta(0), lease=LEASE)
        return [(delivery.job_id, delivery.data) for delivery in taken]

    def execution(self, *, concurrency: int = 20, lease: timedelta = LEASE) -> Execution:
        options = ExecutionOptions(f"worker-{next(self.workers)}", concurrency, lease)
        return Execution(self.workload, self.store, self.broker, self.ambient, options)

    @asynccontextmanager
    async def working(self, *, drain: timedelta = timedelta(seconds=10), **options: Any) -> AsyncIterator[Execution]:
        """A worker that runs during the body, and drains at its end."""
        execution, stop = self.execution(**options), asyncio.Event()
        # A worker that is told to stop still waits for its last question to the queue; no test needs a whole second.
        with patch("holdfast.engine.execution._TAKE_WAIT", timedelta(milliseconds=20)):
            running = asyncio.create_task(execution.run(stop, drain))
            try:
                yield execution
            finally:
                stop.set()
                await running


@asynccontextmanager
async def a_stage(
    workload: Workload[Any] | None = None,
    path: Path | None = None,
    *,
    outbox: bool = False,
) -> AsyncIterator[Stage]:
    """Everything open; in memory, or in a file where a path is given.

    Store and queue commit apart, as in a cluster, so that every gap between them is there to be tested. With
    ``outbox`` the store publishes what it records in the same commit, as it does in the embedded deployment.
    """
    workload = workload or Parcels()
    clock = ManualClock()
    database = Database(path, now=clock.ms)
    ambient = Ambient(clock, CountingIds(), random.Random(1))
    queues = SqliteBroker(database, poll=_POLL)
    store = Troubled(SqliteStore(database, [workload], grace=GRACE, outbox=queues if outbox else None))
    broker = Troubled(queues)
    try:
        await store.open()
        await broker.open()
        intake = Intake(store, broker)
        review = Review(store, broker, {workload.name: workload})
        maintenance = Maintenance(store, broker, [workload], ambient)
        yield Stage(workload, clock, database, store, broker, intake, review, maintenance, ambient)
        await intake.drain()
    finally:
        await database.close()


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


async def delayed(stage, number):
    return (await stage.broker.depth("parcels-main")).delayed == number


async def empty(stage):
    depth = await stage.broker.depth("parcels-main")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)
