"""Shared limits and reasons, beyond the port: lost replies, keys that expire, and Node's own pauses."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from holdfast.brokers.bullmq.keys import PAUSED_BECAUSE, QueueKeys, permits_key, places_key
from holdfast.brokers.bullmq.scripts import load_scripts
from holdfast.contracts.queues import QueueJob, RateLimit
from tests.bullmq.requests import is_a
from tests.support.waiting import eventually

QUEUE = "things"
NAME = "email:send"
HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
HOUR_MS = 3_600_000


@pytest.fixture
def meta(redis_place):
    return QueueKeys(redis_place.prefix, QUEUE)["meta"]


@pytest.fixture
def permits_of(redis_place):
    return permits_key(redis_place.prefix, NAME)


@pytest.fixture
def places_of(redis_place):
    return places_key(redis_place.prefix, NAME)


# --- permits --------------------------------------------------------------------------------------------------


async def test_a_repeated_request_after_a_lost_reply_gives_no_more_permits(broker, proxied, proxy):
    rate = RateLimit(5, HOUR)
    proxy.lose_reply("acquire", is_a(load_scripts().acquire))

    permits = (await proxied.acquire(NAME, rate, 3, hold=HOUR)).given

    assert proxy.seen["acquire"] == 1
    assert len(set(permits)) == 3
    assert len((await broker.acquire(NAME, rate, 5, hold=HOUR)).given) == 2


async def test_a_release_whose_reply_was_lost_is_repeated_without_harm(broker, proxied, proxy, raw, permits_of):
    rate = RateLimit(2, HOUR)
    permits = (await proxied.acquire(NAME, rate, 2, hold=3 * HOUR)).given
    proxy.lose_reply("release", is_a(load_scripts().release))

    await proxied.release(NAME, rate, permits[:1])

    assert proxy.seen["release"] == 1
    assert await raw.zcard(permits_of) == 2
    assert (await broker.acquire(NAME, rate, 2, hold=HOUR)).given == ()
    assert (await broker.acquire(NAME, rate, 2, hold=HOUR)).wait <= HOUR


@pytest.mark.parametrize("released", [0, 1, 2])
async def test_the_key_of_permits_expires_when_all_are_free(broker, raw, permits_of, released):
    rate = RateLimit(3, 20 * MILLISECOND)
    permits = (await broker.acquire(NAME, rate, 2, hold=30 * MILLISECOND)).given
    await broker.release(NAME, rate, permits[:released])

    async def gone():
        return await raw.exists(permits_of) == 0

    await eventually(gone)


async def test_the_key_of_permits_stays_until_the_last_permit_is_free(broker, raw, permits_of):
    (long,) = (await broker.acquire(NAME, RateLimit(3, HOUR), 1, hold=9 * HOUR)).given
    (short,) = (await broker.acquire(NAME, RateLimit(3, MILLISECOND), 1, hold=MILLISECOND)).given
    await broker.release(NAME, RateLimit(3, MILLISECOND), [short])
    assert 9 * HOUR_MS < await raw.pttl(permits_of) <= 10 * HOUR_MS + 2

    await broker.release(NAME, RateLimit(3, HOUR), [long])

    assert await raw.pttl(permits_of) <= HOUR_MS + 2


async def test_permits_and_places_use_the_clock_of_redis(broker, brokers, monkeypatch):
    rate = RateLimit(1, HOUR)
    await broker.acquire(NAME, rate, 1, hold=HOUR)
    await broker.reserve(NAME, rate, ["a", "b"])
    ahead = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: ahead)
    monkeypatch.setattr(time, "time_ns", lambda: int(ahead * 1e9))

    assert (await (await brokers()).acquire(NAME, rate, 1, hold=HOUR)).given == ()
    (wait,) = await broker.reserve(NAME, rate, ["b"])
    assert 0 * HOUR < wait <= HOUR


async def test_no_job_can_have_the_key_of_permits_or_places(broker, raw, redis_place):
    await broker.publish(NAME, [QueueJob("permits", "{}"), QueueJob("holdfast-turns", "{}")])
    before = {key async for key in raw.scan_iter(f"{redis_place.prefix}:*")}

    await broker.acquire(NAME, RateLimit(1, HOUR), 1, hold=HOUR)
    await broker.reserve(NAME, RateLimit(1, HOUR), ["a", "b"])

    after = {key async for key in raw.scan_iter(f"{redis_place.prefix}:*")}
    assert after - before == {permits_key(redis_place.prefix, NAME), places_key(redis_place.prefix, NAME)}
    assert (await broker.depth(NAME)).ready == 2


# --- places ---------------------------------------------------------------------------------------------------


async def test_the_key_of_places_expires_an_hour_after_the_last_place(broker, raw, places_of):
    await broker.reserve(NAME, RateLimit(1, HOUR), ["a", "b", "c"])

    assert 3 * HOUR_MS < await raw.pttl(places_of) <= 4 * HOUR_MS


async def test_a_place_that_was_not_used_for_an_hour_is_forgotten(broker, raw, places_of):
    await broker.reserve(NAME, RateLimit(1, HOUR), ["a", "kept", "lost"])
    now = int((await raw.time())[0])
    await raw.zadd(places_of, {"kept": (now - 3_500) * 1_000_000, "lost": (now - 3_601) * 1_000_000})

    kept, lost = await broker.reserve(NAME, RateLimit(1, HOUR), ["kept", "lost"])

    assert kept == 0 * HOUR
    assert lost > 2 * HOUR


async def test_a_job_whose_reply_was_lost_at_its_time_gets_another_place(broker, proxied, proxy):
    proxy.lose_reply("reserve", is_a(load_scripts().reserve))

    (wait,) = await proxied.reserve(NAME, RateLimit(1, HOUR), ["a"])

    assert proxy.seen["reserve"] == 1
    assert 0 * HOUR < wait <= HOUR
    (again,) = await broker.reserve(NAME, RateLimit(1, HOUR), ["a"])
    assert again <= wait


# --- reasons --------------------------------------------------------------------------------------------------


async def pause_as_node_does(raw, meta):
    await raw.hset(meta, "paused", 1)


async def resume_as_node_does(raw, meta):
    await raw.hdel(meta, "paused")


async def test_a_pause_by_node_has_no_reason(broker, raw, meta):
    await pause_as_node_does(raw, meta)

    depth = await broker.depth(QUEUE)

    assert (depth.paused, depth.paused_because) == (True, None)


async def test_a_queue_that_node_resumed_shows_no_reason(broker, raw, meta):
    await broker.pause(QUEUE, reason="The account is suspended.")

    await resume_as_node_does(raw, meta)

    assert (await broker.depth(QUEUE)).paused_because is None


async def test_a_reason_that_node_left_behind_is_not_that_of_a_later_pause(broker, raw, meta):
    await broker.publish(QUEUE, [QueueJob("a", "{}"), QueueJob("b", "{}")])
    await broker.pause(QUEUE, reason="The account is suspended.")
    await resume_as_node_does(raw, meta)
    assert len(await broker.take(QUEUE, 1, wait=0 * HOUR, lease=HOUR)) == 1

    await pause_as_node_does(raw, meta)
    assert (await broker.depth(QUEUE)).paused_because is None

    await resume_as_node_does(raw, meta)
    await raw.hset(meta, PAUSED_BECAUSE, "An old one.")
    await broker.pause(QUEUE, reason="A new one.")
    assert (await broker.depth(QUEUE)).paused_because == "A new one."


async def test_what_is_resumed_is_as_it_was_before_the_pause(broker, raw, meta):
    await broker.publish(QUEUE, [QueueJob("a", "{}")])
    before = await raw.hgetall(meta)

    await broker.pause(QUEUE, reason="The account is suspended.")
    await broker.resume(QUEUE)

    assert await raw.hgetall(meta) == before
