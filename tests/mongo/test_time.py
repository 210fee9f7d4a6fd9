"""Leases and due times use the server's clock; a wrong clock of a worker does not matter (I15)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.ledger import Cancelled, NotNow, Overdue
from holdfast.contracts.transitions import RetryLater
from holdfast.stores.mongo import server as server_module
from holdfast.stores.mongo.server import ServerClock
from tests.mongo.steps import DAY, an_event, claimed, done, settlement

HOUR = timedelta(hours=1)


@pytest.fixture
def mongo_database(emptied_mongo_database) -> str:
    """A database with its collections: creating them is tested elsewhere."""
    return emptied_mongo_database


@pytest.fixture
def wrong_clock(monkeypatch):
    """Set the clock of this process hours ahead, or behind."""
    right = time.time

    def set_wrong(hours):
        monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
        monkeypatch.setattr(time, "time_ns", lambda: int((right() + hours * 3600) * 1e9))

    return set_wrong


@pytest.mark.parametrize("hours", [-50, 50])
async def test_the_clock_of_a_worker_does_not_matter(store, make_store, wrong_clock, hours):
    await store.record([an_event("held"), an_event("with-ttl", ttl=HOUR)])
    await claimed(store, "held", lease=DAY)
    before = await store.now()
    wrong_clock(hours)
    (jumped,) = await store.record([an_event("jumped")])
    elsewhere = make_store()
    await elsewhere.open()

    await elsewhere.record([an_event("new", delay=HOUR)])
    (held, delayed) = await elsewhere.claim("courier", ["id-held", "id-new"], worker="wrong", lease=DAY, max_attempts=5)
    claim = await claimed(elsewhere, "with-ttl", lease=HOUR)
    (answer,) = await elsewhere.settle([settlement(claim, RetryLater(HOUR, "X", "x"))])

    after = await store.now()
    new, with_ttl = await store.entry("courier", "new"), await store.entry("courier", "with-ttl")
    assert isinstance(held, NotNow)
    assert isinstance(delayed, NotNow)
    assert held.after <= DAY
    assert before <= jumped.first_seen_at <= after
    assert before <= new.first_seen_at <= after
    assert before + HOUR <= new.not_before <= after + HOUR
    assert before <= with_ttl.attempts[0].started_at <= with_ttl.attempts[0].finished_at <= after
    assert before + HOUR <= with_ttl.not_before <= after + HOUR
    assert not answer.stale
    assert await elsewhere.due("courier", 10, again_after=HOUR) == []
    assert await elsewhere.overdue("courier", 10) == []
    assert (await elsewhere.prune(10)).entries == 0


async def test_the_estimate_is_the_servers_time_and_never_ahead_of_it(store):
    for _ in range(200):
        estimate = await store.link.about_now()
        asked = await store.now()

        assert asked - timedelta(seconds=2) < estimate <= asked


async def test_what_is_recorded_right_after_asking_is_not_older(store):
    for number in range(50):
        before = await store.now()
        (answer,) = await store.record([an_event(f"k{number}")])

        assert before <= answer.first_seen_at <= await store.now()


async def test_a_job_stays_cancelled_though_the_next_primarys_clock_is_behind(store):
    await store.record([an_event(delay=DAY)])
    store.link.clock.skew = HOUR
    assert await store.cancel("courier", ["id-k"]) == [Cancelled.ENDS]
    store.link.clock.skew = timedelta(0)

    (claim,) = await store.claim("courier", ["id-k"], worker="w", lease=DAY, max_attempts=5)

    assert isinstance(claim, Overdue)
    assert claim.cancelled


# --- the clock by itself ------------------------------------------------------------------------------------------

NOON = datetime(2026, 2, 26, 12, tzinfo=UTC)


@pytest.fixture
def steady(monkeypatch):
    """Steady time in milliseconds; a test can move it."""
    at = [5_000.0]
    monkeypatch.setattr(server_module, "steady_ms", lambda: at[0])
    return at


def test_a_clock_without_an_answer_has_no_estimate(steady):
    assert ServerClock().estimate() is None


def test_the_estimate_goes_on_with_the_steady_time(steady):
    clock = ServerClock()
    clock.update(NOON)
    steady[0] += 1_500

    assert clock.estimate() == NOON + timedelta(seconds=1.5)


def test_an_old_estimate_is_none(steady):
    clock = ServerClock()
    clock.update(NOON)
    steady[0] += 2_001

    assert clock.estimate() is None


def test_an_answer_that_was_long_under_way_does_not_set_the_clock_back(steady):
    clock = ServerClock()
    clock.update(NOON)
    steady[0] += 900
    clock.update(NOON + timedelta(milliseconds=100))  # the answer took 800 ms to arrive

    assert clock.estimate() == NOON + timedelta(milliseconds=900)


def test_another_servers_clock_is_taken_over(steady):
    clock = ServerClock()
    clock.update(NOON)
    clock.update(NOON - timedelta(seconds=30))

    assert clock.estimate() == NOON - timedelta(seconds=30)


def test_drift_is_followed_in_the_end(steady):
    clock = ServerClock()
    clock.update(NOON)
    for _ in range(40):
        steady[0] += 1_000
        clock.update(NOON + timedelta(milliseconds=steady[0] - 5_000 - 500))

    assert clock.estimate() == NOON + timedelta(milliseconds=steady[0] - 5_000 - 500)


async def test_time_that_a_test_lets_pass_passes_everywhere(store):
    await store.record([an_event(ttl=HOUR)])
    store.link.clock.skew = 2 * HOUR

    assert await store.overdue("courier", 10) == ["id-k"]
    assert [each.job_id for each in await store.due("courier", 10, again_after=HOUR)] == ["id-k"]
    store.link.clock.skew = timedelta(0)
    (answer,) = await store.settle([settlement(await claimed(store), done())])
    assert not answer.stale
