"""The suites for the embedded store and broker: in real files, and in memory as in a simulation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.conformance.broker_suite import BrokerSuite
from tests.conformance.store_suite import StoreSuite
from tests.conformance.vocabulary import HOUR, a_job, collections, workloads
from tests.support.clock import ManualClock
from tests.support.gateway import lose_the_queue


class SqliteHarness:
    """Both harnesses at once: the store and the broker share a file.

    With a path, every instance opens the file again, like another process. In memory all instances share one
    connection, because an in-memory database has only one.
    """

    moment = timedelta(seconds=1)
    grace = timedelta(seconds=5)
    keeps_failed = False

    def __init__(self, path=None) -> None:
        self._path = path
        self._clock = ManualClock()
        self._databases = []

    async def store(self):
        store = SqliteStore(self._database(), workloads(), grace=self.grace, collections=collections())
        await store.open()
        return store

    async def broker(self):
        broker = SqliteBroker(self._database(), poll=timedelta(milliseconds=5))
        await broker.open()
        return broker

    async def pass_time(self, duration):
        self._clock.advance(duration)

    async def lose_everything(self):
        await lose_the_queue(self._databases[0])

    async def close(self):
        for database in self._databases:
            await database.close()

    def _database(self):
        if self._path is not None or not self._databases:
            self._databases.append(Database(self._path, now=self._clock.ms))
        return self._databases[-1]


class InAFile:
    @pytest.fixture
    async def harness(self, tmp_path):
        harness = SqliteHarness(tmp_path / "holdfast.db")
        yield harness
        await harness.close()


class InMemory:
    @pytest.fixture
    async def harness(self):
        harness = SqliteHarness()
        yield harness
        await harness.close()


class TestSqliteStoreInAFile(InAFile, StoreSuite):
    pass


class TestSqliteStoreInMemory(InMemory, StoreSuite):
    pass


class TestSqliteBrokerInAFile(InAFile, BrokerSuite):
    pass


class TestSqliteBrokerInMemory(InMemory, BrokerSuite):
    pass


# --- one file for both ----------------------------------------------------------------------------------------


async def test_a_store_with_its_queue_in_the_same_file_publishes_what_it_records(tmp_path):
    database = Database(tmp_path / "holdfast.db", now=ManualClock().ms)
    broker = SqliteBroker(database)
    store = SqliteStore(database, workloads(), outbox=broker)
    await store.open()
    await broker.open()
    waiting = asyncio.create_task(broker.take("things-main", 10, wait=timedelta(seconds=30), lease=HOUR))

    answers = await store.record([a_job("a", priority=1), a_job("b"), a_job("a"), a_job("b", fingerprint="other")])

    assert [answer.queued for answer in answers] == [True, True, False, False]
    assert [(each.job_id, each.data) for each in await waiting] == [
        ("id-b", a_job("b").body),
        ("id-a", a_job("a").body),
    ]
    await store.record([a_job("later", delay=HOUR), a_job("c", workload="others")])
    assert (await broker.depth("things-main")).delayed == 1
    assert (await broker.depth("others-main")).ready == 1
    await database.close()


async def test_what_it_publishes_has_the_name_that_the_workload_gives_its_jobs(tmp_path):
    database = Database(tmp_path / "holdfast.db", now=ManualClock().ms)
    broker = SqliteBroker(database)
    things, others = workloads()
    things.job_name = "thing:make"
    store = SqliteStore(database, [things, others], outbox=broker)
    await store.open()
    await broker.open()

    await store.record([a_job("a"), a_job("b", workload="others")])

    names = await database.read(lambda c: c.execute("SELECT name FROM queue_jobs ORDER BY seq").fetchall())
    assert [name for (name,) in names] == ["thing:make", "others"]
    await database.close()


async def test_a_job_whose_effects_are_refused_is_not_published(tmp_path):
    database = Database(tmp_path / "holdfast.db", now=ManualClock().ms)
    broker = SqliteBroker(database)
    store = SqliteStore(database, workloads(), outbox=broker)
    await store.open()
    await broker.open()
    assert store.publishes

    with pytest.raises(EffectRefused):
        await store.record([a_job("a"), a_job("b", effects=[Upsert("nowhere", "x", {})])])

    assert (await broker.depth("things-main")).ready == 0
    await store.record([a_job("a"), a_job("b", effects=[Upsert("box", "x", {})])])
    assert (await broker.depth("things-main")).ready == 2
    await database.close()


async def test_what_is_not_recorded_is_not_published(tmp_path):
    database = Database(tmp_path / "holdfast.db", now=ManualClock().ms)
    broker = SqliteBroker(database)
    store = SqliteStore(database, workloads(), outbox=broker)
    await store.open()
    await broker.open()

    with pytest.raises(ValueError, match="surrogates not allowed"):
        await store.record([a_job("a"), a_job("b", labels={"colour": "half \ud800"})])

    assert await store.counts("things") == {}
    assert (await broker.depth("things-main")).ready == 0
    await database.close()
