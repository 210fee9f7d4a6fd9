"""Brokers on a prefix of a real Valkey, directly and through a proxy that loses replies."""

from __future__ import annotations

import pytest
import redis.asyncio

from holdfast.brokers.bullmq import BullmqBroker
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
async def brokers(redis_place):
    """Make brokers that are closed after the test."""
    made = []

    async def make(url=redis_place.url, **options):
        broker = BullmqBroker(url, prefix=redis_place.prefix, **options)
        await broker.open()
        made.append(broker)
        return broker

    yield make
    for broker in made:
        await broker.close()


@pytest.fixture
async def broker(brokers):
    return await brokers()


@pytest.fixture
async def raw(redis_place):
    client = redis.asyncio.Redis.from_url(redis_place.url, decode_responses=True)
    yield client
    await client.aclose()


@pytest.fixture
async def proxy(valkey):
    async with TcpProxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture
async def proxied(brokers, proxy, redis_place):
    if not redis_place.ours:
        pytest.skip("the proxy is only for our own server")
    broker = await brokers(f"redis://127.0.0.1:{proxy.port}/0")
    await broker.ping()
    return broker
