"""The guarantee of permits, measured at the times when their holders use them."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta

import pytest

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.queues import RateLimit
from holdfast.sqlite import Database
from tests.support.clock import ManualClock

NAME = "the-provider"
MILLISECOND = timedelta(milliseconds=1)


def assert_never_more(instants, most, per):
    """No time span of length ``per`` contains more than ``most`` of these instants."""
    ordered = sorted(instants)
    crowded = [(first, last) for first, last in zip(ordered, ordered[most:], strict=False) if last - first < per]
    assert crowded == []


# --- in real time ---------------------------------------------------------------------------------------------


async def use_permits(brokers, *, most, per, seed):
    """Twelve clients on three brokers acquire permits; return the instants at which they used them.

    One client in ten does not release its permits. A use after the hold, on a machine that was too slow, does not
    count: it is not guaranteed.
    """
    rate, hold, uses, chance = RateLimit(most, per), timedelta(milliseconds=200), [], random.Random(seed)

    async def client(broker):
        while len(uses) < 40 + 4 * most:
            asked = time.time_ns()  # the clock of both queues, which are on this machine
            permits = await broker.acquire(NAME, rate, chance.randint(1, 4), hold=hold)
            for _ in permits.given:
                await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
                now = time.time_ns()
                if now - asked < hold.total_seconds() * 1e9:
                    uses.append(now)
            if chance.random() < 0.9:
                await broker.release(NAME, rate, permits.given)
            await asyncio.sleep(min(permits.wait.total_seconds(), 0.02))

    await asyncio.gather(*(client(broker) for broker in brokers * 4))
    return uses


class InRealTime:
    @pytest.mark.parametrize(("most", "ms"), [(1, 5), (7, 20), (30, 100)])
    async def test_however_many_acquire_permits_no_span_has_more_than_the_limit(self, brokers, most, ms):
        uses = await use_permits(brokers, most=most, per=timedelta(milliseconds=ms), seed=ms)

        assert_never_more(uses, most, ms * 1_000_000)


class TestPermitsOfThreeBrokersOnOneFile(InRealTime):
    @pytest.fixture
    async def brokers(self, tmp_path):
        databases = [Database(tmp_path / "holdfast.db") for _ in range(3)]
        brokers = [SqliteBroker(database) for database in databases]
        for broker in brokers:
            await broker.open()
        yield brokers
        for database in databases:
            await database.close()


class TestPermitsOfThreeClientsOfRedis(InRealTime):
    @pytest.fixture
    async def brokers(self, redis_place):
        brokers = [BullmqBroker(redis_place.url, prefix=redis_place.prefix) for _ in range(3)]
        yield brokers
        for broker in brokers:
            await broker.close()


# --- on a clock that can be moved -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_permits_are_given_whenever_they_are_free_and_never_before(seed):
    """A model of the guarantee is compared with the broker over many random steps."""
    chance, clock = random.Random(seed), ManualClock()
    database = Database(None, now=clock.ms)
    broker = SqliteBroker(database)
    await broker.open()
    rate, hold = RateLimit(5, 100 * MILLISECOND), 250 * MILLISECOND
    held, resting, uses = {}, {}, []

    for _ in range(1_500):
        now = clock.now()
        for known in (held, resting):
            for permit in [permit for permit, free_at in known.items() if free_at <= now]:
                del known[permit]
        step = chance.choice(["acquire", "acquire", "release", "release again", "wait"])
        if step == "acquire":
            wanted, free = chance.randint(1, 4), rate.most - len(held) - len(resting)
            answer = await broker.acquire(NAME, rate, wanted, hold=hold)
            assert len(answer.given) == min(wanted, free)
            held |= dict.fromkeys(answer.given, now + hold + rate.per + MILLISECOND)
            uses += [clock.ms()] * len(answer.given)
            soonest = min([now + rate.per + MILLISECOND, *held.values(), *resting.values()])
            assert now + answer.wait == (now if len(answer.given) < free else soonest)
        elif step == "release":
            permits = chance.sample(sorted(held), min(len(held), chance.randint(1, 3)))
            await broker.release(NAME, rate, permits)
            for permit in permits:
                del held[permit]
                resting[permit] = now + rate.per + MILLISECOND
        elif step == "release again":
            await broker.release(NAME, rate, [*resting, "never given"])
        else:
            clock.advance(chance.choice([1, 3, 10, 30, 99, 100, 101]) * MILLISECOND)

    assert len(uses) > 100
    assert_never_more(uses, rate.most, 100)
    await database.close()


# --- places ---------------------------------------------------------------------------------------------------


async def test_a_place_that_was_not_used_for_an_hour_is_forgotten():
    clock = ManualClock()
    database = Database(None, now=clock.ms)
    broker = SqliteBroker(database)
    await broker.open()
    hour, rate = timedelta(hours=1), RateLimit(1, timedelta(hours=2))
    await broker.reserve(NAME, rate, ["a", "kept", "lost"])  # at 0, 2 and 4 o'clock; the next is at 6
    clock.advance(3 * hour - MILLISECOND)
    assert await broker.reserve(NAME, rate, ["kept"]) == [0 * hour]

    clock.advance(2 * hour + MILLISECOND)

    assert await broker.reserve(NAME, rate, ["lost"]) == [hour]
    clock.advance(9 * hour)
    await broker.reserve("another", rate, [])
    for table in ("queue_places", "queue_flows"):
        count = await database.read(lambda c, t=table: c.execute(f"SELECT name FROM {t}").fetchall())  # noqa: S608
        assert count in ([], [("another",)])
    await database.close()


async def test_free_permits_leave_no_rows_behind():
    clock = ManualClock()
    database = Database(None, now=clock.ms)
    broker = SqliteBroker(database)
    await broker.open()
    rate = RateLimit(3, MILLISECOND)
    await broker.acquire(NAME, rate, 3, hold=MILLISECOND)
    clock.advance(3 * MILLISECOND)

    (permit,) = (await broker.acquire("another", rate, 1, hold=MILLISECOND)).given

    left = await database.read(lambda c: c.execute("SELECT name, turn FROM queue_turns").fetchall())
    assert left == [("another", permit)]
    await database.close()
