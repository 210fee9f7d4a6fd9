"""The proxy of the fault tests does what it says: a lost reply is one whose command was executed."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as TookTooLong

from tests.support.tcp_proxy import TcpProxy, Way
from tests.support.waiting import eventually


@pytest.fixture
async def proxy(valkey):
    async with TcpProxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy):
    """A client that goes through the proxy and repeats nothing by itself."""
    async with Redis(port=proxy.port, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client:
        yield client


@pytest.fixture
async def direct(valkey):
    async with Redis(port=valkey.port) as client:
        await client.delete("number")
        yield client


def incrementing(request: bytes) -> bool:
    return b"INCR" in request


async def test_a_reply_is_lost_after_the_command_was_executed(proxy, through, direct):
    proxy.lose_reply("increment", incrementing)
    assert await through.set("other", "1")

    with pytest.raises(Disconnected):
        await through.incr("number")

    assert await direct.get("number") == b"1"
    assert proxy.seen["increment"] == 1
    assert proxy.owed == []
    assert await through.incr("number") == 2


async def test_a_silent_loss_leaves_the_client_waiting(proxy, through, direct):
    proxy.lose_reply("increment", incrementing, silent=True)

    with pytest.raises(TookTooLong):
        await through.incr("number")

    assert await direct.get("number") == b"1"
    assert await through.incr("number") == 2


async def test_a_reset_ends_open_connections_and_spares_new_ones(proxy, through):
    await through.ping()

    assert proxy.reset() == 1

    with pytest.raises(Disconnected):
        await through.ping()
    assert await through.ping()


async def test_what_a_blackhole_held_arrives_when_it_closes(proxy, through, direct):
    await through.ping()
    async with proxy.blackhole():
        asking = asyncio.create_task(through.incr("number"))
        await direct.ping()
        assert await direct.get("number") is None
    assert await asking == 1


async def test_a_blackhole_for_replies_lets_requests_through(proxy, through, direct):
    await through.ping()
    async with proxy.blackhole(Way.REPLIES):
        asking = asyncio.create_task(through.incr("number"))

        async def executed():
            return await direct.get("number") == b"1"

        await eventually(executed)
        assert not asking.done()
    assert await asking == 1


async def test_latency_delays_both_directions(proxy, through):
    await through.ping()
    clock = asyncio.get_running_loop().time
    proxy.latency = 0.05
    began = clock()

    await through.ping()

    assert clock() - began >= 0.1


async def test_a_server_that_is_not_there_is_a_closed_connection(valkey, proxy, through):
    proxy.target = 1  # nobody listens on it

    with pytest.raises(Disconnected):
        await through.ping()

    proxy.target = valkey.port
    assert await through.ping()
