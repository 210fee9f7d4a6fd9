"""A store on the MongoDB of this pytest process, and the database behind it."""

from __future__ import annotations

import contextlib

import pytest
from pymongo import AsyncMongoClient

from holdfast.features.courier.workload import Courier
from holdfast.stores.mongo import MongoStore
from tests.mongo.steps import Parcels
from tests.support.mongo_server import collect_what_the_driver_left


@pytest.fixture(autouse=True)
def _nothing_left_for_the_next_test():
    yield
    collect_what_the_driver_left()


@pytest.fixture
async def make_store(mongo, mongo_database):
    """Make stores on one database, each with its own connections. They are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        def make(workloads=None, uri=mongo.uri, collections=()):
            store = MongoStore(
                uri, mongo_database, [Courier()] if workloads is None else workloads, collections=collections
            )
            stack.push_async_callback(store.disconnect)
            return store

        yield make


@pytest.fixture
async def store(make_store):
    """The store of the courier workload, open."""
    store = make_store()
    await store.open()
    return store


@pytest.fixture
async def parcels(make_store):
    """The store of a workload with fairness keys, open."""
    store = make_store([Parcels()])
    await store.open()
    return store


@pytest.fixture
async def database(mongo, mongo_database):
    """The same database, read directly."""
    async with AsyncMongoClient(mongo.uri, tz_aware=True) as client:
        yield client[mongo_database]
