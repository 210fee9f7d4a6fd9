"""The collections of the specification in MongoDB: their names and their indexes."""

from __future__ import annotations

import pytest
from pymongo import MongoClient

from holdfast.features.courier.feature import workload_of as courier_of
from holdfast.stores.mongo import MongoStore
from tests.support.settings import Settings

LEDGER, SHIPMENTS, LETTERS = "processed_events", "active_shipments", "dead_letter_events"


@pytest.fixture
async def database(mongo, mongo_database):
    """The database as ``holdfast migrate`` leaves it."""
    store = MongoStore(mongo.uri, mongo_database, [courier_of(Settings())])
    try:
        await store.migrate()
    finally:
        await store.disconnect()
    with MongoClient(mongo.uri) as client:
        yield client[mongo_database]


def index(database, collection, *fields):
    """What MongoDB knows of the index on these fields, all ascending; None when there is none."""
    wanted = [(field, 1) for field in fields]
    known = database[collection].index_information().values()
    return next((each for each in known if each["key"] == wanted), None)


@pytest.mark.parametrize(
    ("collection", "field"), [(LEDGER, "idempotencyKey"), (SHIPMENTS, "shipmentId")], ids=[LEDGER, SHIPMENTS]
)
async def test_the_unique_fields_of_the_specification_are_unique(database, collection, field):
    assert index(database, collection, field)["unique"] is True


@pytest.mark.parametrize(
    ("collection", "fields"),
    [
        (LEDGER, ("status", "updatedAt")),
        (SHIPMENTS, ("orderId",)),
        (SHIPMENTS, ("currentState", "updatedAt")),
        (LETTERS, ("reviewStatus", "createdAt")),
        (LETTERS, ("createdAt",)),
    ],
)
async def test_the_indexes_of_the_specification_exist(database, collection, fields):
    assert index(database, collection, *fields) is not None


@pytest.mark.parametrize("collection", [LEDGER, LETTERS])
async def test_mongodb_itself_removes_what_has_expired(database, collection):
    assert index(database, collection, "expiresAt")["expireAfterSeconds"] >= 0


async def test_an_entry_outlives_its_letter_in_mongodb_too(database):
    letters, entries = (index(database, each, "expiresAt")["expireAfterSeconds"] for each in (LETTERS, LEDGER))

    assert letters < entries
