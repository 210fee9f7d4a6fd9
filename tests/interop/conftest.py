"""Ours and Node's, on one server, under a prefix of the test's own."""

from __future__ import annotations

import contextlib

import pytest

from holdfast.brokers.bullmq import BullmqBroker
from tests.interop.courier import forwarding_to, settings_for
from tests.interop.node_queue import NodeQueue
from tests.support.downstream import Downstream
from tests.support.gateway import opened


@pytest.fixture
async def broker(redis_place):
    """Our broker."""
    broker = BullmqBroker(redis_place.url, prefix=redis_place.prefix)
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def open_queue(node, redis_place):
    """Opens a queue in Node: ``open_queue(name)``, or with a part of the name as ``inside`` the prefix."""

    def open_one(name: str, *, inside: str | None = None) -> NodeQueue:
        prefix = redis_place.prefix if inside is None else f"{redis_place.prefix}:{inside}"
        return NodeQueue(node, redis_place.url, prefix, name)

    yield open_one
    await node("forget", prefix=redis_place.prefix)


@pytest.fixture
def jobs(open_queue) -> NodeQueue:
    """The queue ``jobs`` as Node sees it."""
    return open_queue("jobs")


@pytest.fixture
async def downstream():
    """Where the gateway forwards events to; it counts them."""
    async with Downstream() as server:
        yield server


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """How collections come to be is tested elsewhere."""
    return emptied_mongo_database


@pytest.fixture
async def open_gateway_with(redis_place, mongo, mongo_database):
    """Opens a gateway with settings of the test's own."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_one(**changes):
            settings = settings_for(redis_place.url, redis_place.prefix, mongo.uri, mongo_database, **changes)
            return await stack.enter_async_context(opened(settings))

        yield open_one


@pytest.fixture
async def gateway(open_gateway_with, downstream):
    """A gateway that forwards to ``downstream``."""
    return await open_gateway_with(**forwarding_to(downstream))
