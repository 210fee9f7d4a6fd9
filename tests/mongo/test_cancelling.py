"""A task that is cancelled while it asks the server is cancelled, whatever the driver makes of it."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.mongo.steps import an_event, claimed, done, settlement


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """How collections come to be is tested elsewhere."""
    return emptied_mongo_database


# PyMongo leaves a socket to the garbage collector when it is cancelled while it connects.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("asking", ["get", "settle"])
async def test_no_cancellation_is_forgotten(make_store, asking):
    """Before Python 3.12 one in a dozen was, where it met the answer, and its task went on for ever."""
    store = make_store()
    await store.open()
    await store.record([an_event("e")])
    claim = await claimed(store, "e")
    chance = random.Random(7)
    met = 0
    for _ in range(400):
        question = store.get("active_shipments", "x") if asking == "get" else store.settle([settlement(claim, done())])
        task = asyncio.create_task(question)
        for _ in range(chance.randrange(60)):  # about as many as the answer takes
            await asyncio.sleep(0)
        if task.cancel():
            met += 1
            await asyncio.wait([task])
            assert task.cancelled()
    assert met > 20
