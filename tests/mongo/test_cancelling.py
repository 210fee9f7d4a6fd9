"""A task that is cancelled during a call to the server ends as cancelled, whatever the driver does."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.mongo.steps import an_event, claimed, done, settlement


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """A database with its collections: creating them is tested elsewhere."""
    return emptied_mongo_database


# When PyMongo is cancelled while it connects, it leaves a socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("asking", ["get", "settle"])
async def test_no_cancellation_is_lost(make_store, asking):
    """Before Python 3.12, one in twelve cancellations came together with the reply and was lost: the task went on."""
    store = make_store()
    await store.open()
    await store.record([an_event("e")])
    claim = await claimed(store, "e")
    chance = random.Random(7)
    cancellations = 0
    for _ in range(400):
        question = store.get("active_shipments", "x") if asking == "get" else store.settle([settlement(claim, done())])
        task = asyncio.create_task(question)
        for _ in range(chance.randrange(60)):  # about as many steps as a call takes
            await asyncio.sleep(0)
        if task.cancel():
            cancellations += 1
            await asyncio.wait([task])
            assert task.cancelled()
    assert cancellations > 20
