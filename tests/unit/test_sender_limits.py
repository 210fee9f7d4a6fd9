"""The limits of each sender: one sender's many requests cost the others nothing (I18)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.tenants import (
    Sender,
    TenantLimits,
    TooFast,
    TooManyPending,
    TooManyStreams,
    TooManyWaiting,
)
from holdfast.engine import sender_limits
from holdfast.engine.sender_limits import SenderLimits
from holdfast.telemetry import refusals
from tests.support.clock import ManualClock
from tests.support.waiting import eventually

ACME = Sender("acme", "acme")
OTHER = Sender("other", "other")
DEFAULTS = TenantLimits(requests_per_second=10, pending=3, waiting_jobs=5, streams=2)


class Counts:
    """A ledger that only counts, as slowly as the test wants."""

    def __init__(self) -> None:
        self.unsettled: dict[str, int] = {}
        self.asked: list[tuple[str, int]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.away = False

    async def count_unsettled(self, prefix: str, most: int) -> int:
        self.asked.append((prefix, most))
        await self.answers.wait()
        if self.away:
            raise StoreUnavailable
        return min(most, self.unsettled.get(prefix, 0))


@pytest.fixture(autouse=True)
def held_back(monkeypatch):
    """Refusals are not held back here: there are thousands of them."""
    monkeypatch.setattr(sender_limits, "HOLD_SECONDS", 0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def ledger():
    return Counts()


@pytest.fixture
def limits(ledger, clock):
    return SenderLimits(ledger, clock, DEFAULTS)


async def sent(limits, sender, times=1_000):
    """How many of so many requests at once pass."""
    passed = 0
    for _ in range(times):
        try:
            await limits.count_request(sender)
        except TooFast:
            continue
        passed += 1
    return passed


async def test_a_sender_sends_two_seconds_worth_at_once_and_then_its_rate(limits, clock):
    before = refusals().get("sender_requests", 0)
    assert await sent(limits, ACME) == 20
    assert refusals()["sender_requests"] - before == 980
    clock.advance(timedelta(seconds=1))
    assert await sent(limits, ACME) == 10
    clock.advance(timedelta(hours=1))
    assert await sent(limits, ACME) == 20


async def test_one_senders_flood_leaves_the_others_their_rate(limits):
    await sent(limits, ACME)
    assert await sent(limits, OTHER) == 20


async def test_a_refusal_says_when_the_next_request_passes(limits, clock):
    slow = Sender("slow", limits=TenantLimits(requests_per_second=1))
    await sent(limits, slow)
    limits.count_more(slow, 6)
    with pytest.raises(TooFast) as caught:
        await limits.count_request(slow)
    assert caught.value.retry_after == 7
    clock.advance(timedelta(seconds=6, milliseconds=900))
    assert await sent(limits, slow, 1) == 0
    clock.advance(timedelta(milliseconds=100))
    assert await sent(limits, slow, 1) == 1


async def test_a_limit_of_the_senders_own_replaces_the_default_and_only_it(limits):
    quick = Sender("quick", "quick", TenantLimits(requests_per_second=100))
    assert await sent(limits, quick) == 200
    with limits.stream(quick), limits.stream(quick), pytest.raises(TooManyStreams), limits.stream(quick):
        pass


async def test_without_any_limit_everything_passes(ledger, clock):
    assert await sent(SenderLimits(ledger, clock, TenantLimits()), ACME) == 1_000


def test_streams_are_limited_for_each_sender_and_free_again_at_their_end(limits):
    held = [limits.stream(ACME) for _ in range(2)]
    for each in held:
        each.__enter__()
    with pytest.raises(TooManyStreams), limits.stream(ACME):
        pass
    with limits.stream(OTHER):
        pass
    held[0].__exit__(None, None, None)
    with limits.stream(ACME):
        pass


def test_pending_requests_are_limited_for_each_sender_and_free_again_at_their_end(limits):
    for _ in range(3):
        limits.begin_pending(ACME)
    with pytest.raises(TooManyPending):
        limits.begin_pending(ACME)
    limits.begin_pending(OTHER)
    limits.end_pending(ACME)
    limits.begin_pending(ACME)


# --- waiting jobs -----------------------------------------------------------------------------------------------------


async def test_jobs_are_counted_in_the_ledger_once_a_second_and_those_of_this_process_in_between(limits, ledger, clock):
    ledger.unsettled["acme/"] = 3
    await limits.count_job(ACME)
    await limits.count_job(ACME)
    with pytest.raises(TooManyWaiting):
        await limits.count_job(ACME)
    assert ledger.asked == [("acme/", 5)]

    ledger.unsettled["acme/"] = 4
    clock.advance(timedelta(seconds=1))
    await limits.count_job(ACME)
    with pytest.raises(TooManyWaiting):
        await limits.count_job(ACME)
    assert len(ledger.asked) == 2
    await limits.count_job(OTHER)


async def test_requests_that_come_during_a_count_share_it_and_no_more_pass_than_may(limits, ledger):
    ledger.answers.clear()
    jobs = [asyncio.create_task(limits.count_job(ACME)) for _ in range(50)]
    await eventually(lambda: ledger.asked)
    ledger.answers.set()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert len(ledger.asked) == 1
    assert sum(each is None for each in results) == 5


async def test_jobs_that_wait_for_their_commit_count_with_those_in_the_ledger(limits, ledger):
    for _ in range(2):
        limits.begin_pending(ACME)
    ledger.unsettled["acme/"] = 3
    with pytest.raises(TooManyWaiting):
        await limits.check_jobs(ACME)


async def test_a_store_that_is_away_is_asked_again_and_locks_nobody_out(limits, ledger):
    ledger.away = True
    answers = await asyncio.gather(*(limits.count_job(ACME) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [StoreUnavailable] * 3
    ledger.away = False
    await limits.count_job(ACME)
    assert len(ledger.asked) == 2


async def test_a_slow_count_is_repeated_less_often(limits, ledger, clock):
    ledger.answers.clear()
    counting = asyncio.create_task(limits.count_job(ACME))
    await eventually(lambda: ledger.asked)
    clock.advance(timedelta(milliseconds=100))
    ledger.answers.set()
    await counting
    clock.advance(timedelta(milliseconds=4_900))
    await limits.count_job(ACME)
    assert len(ledger.asked) == 1
    clock.advance(timedelta(milliseconds=100))
    await limits.count_job(ACME)
    assert len(ledger.asked) == 2


async def test_the_jobs_of_a_sender_without_an_owner_are_not_counted(limits, ledger):
    for _ in range(10):
        await limits.count_job(Sender("courier:x"))
    assert ledger.asked == []


# --- the limits of a sender -----------------------------------------------------------------------------------------


def test_the_limits_of_a_sender_are_made_once_for_each_change(limits):
    own = Sender("acme", "acme", TenantLimits(pending=1))
    changed = Sender("acme", "acme", TenantLimits(pending=2))

    made = limits.of(own)

    assert (made.pending, made.streams) == (1, DEFAULTS.streams)
    assert limits.of(own) is made
    assert (limits.of(changed).pending, limits.of(OTHER).pending) == (2, DEFAULTS.pending)


async def test_jobs_that_come_before_it_in_its_request_count_for_a_job(limits, ledger):
    ledger.unsettled["acme/"] = 4
    await limits.check_jobs(ACME)
    with pytest.raises(TooManyWaiting):
        await limits.check_jobs(ACME, ahead=1)
    with pytest.raises(TooManyPending):
        await limits.check_jobs(ACME, ahead=3)
