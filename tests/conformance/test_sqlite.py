"""The embedded store and broker, held to the ports: in real files, and in the memory of a simulation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.conformance.broker_suite import BrokerSuite
from tests.conformance.store_suite import StoreSuite
from tests.conformance.vocabulary import workloads
from tests.support.clock import ManualClock
from tests.support.stage import lose_the_queue


class SqliteHarness:
    """Both harnesses at once: the store and the broker share a file.

    With a path, every instance opens the file anew, as another process would. In memory they share one connection,
    for that is all that an in-memory database has.
    """

    moment = timedelta(seconds=1)
    grace = timedelta(seconds=5)
    keeps_failed = False

    def __init__(self, path=None) -> None:
        self._path = path
        self._clock = ManualClock()
        self._databases = []

    async def store(self):
        store = SqliteStore(self._database(), workloads(), grace=self.grace)
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
