"""The store suite for the cluster's store, on a real MongoDB."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.stores.mongo import MongoStore
from tests.conformance.store_suite import StoreSuite
from tests.conformance.vocabulary import collections, workloads


class MongoHarness:
    """Every store has its own connections, like another process. The clock is the server's, moved ahead."""

    moment = timedelta(seconds=30)
    grace = timedelta(seconds=60)

    def __init__(self, uri, database) -> None:
        self._uri = uri
        self._database = database
        self._stores = []
        self._passed = timedelta(0)

    async def store(self):
        store = MongoStore(self._uri, self._database, workloads(), collections=collections(), grace=self.grace)
        self._stores.append(store)
        self._set(store)
        await store.open()
        return store

    async def pass_time(self, duration):
        self._passed += duration
        for store in self._stores:
            self._set(store)

    async def close(self):
        for store in self._stores:
            await store.disconnect()

    def _set(self, store):
        store.link.clock.skew = self._passed


class TestMongoStore(StoreSuite):
    @pytest.fixture
    async def harness(self, mongo, emptied_mongo_database):
        harness = MongoHarness(mongo.uri, emptied_mongo_database)
        yield harness
        await harness.close()
