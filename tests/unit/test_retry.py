"""Retry policies: the formula of rule C31, and the listed delays."""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ExponentialBackoff, ListedDelays

SPECIFIED_DELAYS_MS = [1000, 2000, 4000, 8000]
"""Rules C27, C28 and C29: 1000 ms, doubled after each failed attempt; the fifth attempt is the last."""


class Chance:
    """Gives the given part of every range that it is asked for."""

    def __init__(self, part: float) -> None:
        self.part = part
        self.asked: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.asked.append((a, b))
        return a + (b - a) * self.part


def milliseconds(wait: timedelta) -> float:
    return wait / timedelta(milliseconds=1)


@pytest.mark.parametrize(("attempt", "delay"), list(enumerate(SPECIFIED_DELAYS_MS, start=1)))
def test_the_delay_is_the_formula_of_the_specification(attempt, delay):
    policy = ExponentialBackoff()

    assert milliseconds(policy.delay(attempt, Chance(0))) == delay
    assert milliseconds(policy.delay(attempt, Chance(0.5))) == delay * 1.1
    assert milliseconds(policy.delay(attempt, Chance(1))) == delay * 1.2


def test_a_job_is_tried_five_times():
    assert ExponentialBackoff().max_attempts == 5


def test_chance_is_asked_for_nothing_but_the_jitter():
    chance = Chance(0)
    ExponentialBackoff().delay(3, chance)

    assert chance.asked == [(0.0, 0.8)]


def test_the_environment_decides_nothing_here(monkeypatch):
    for name in os.environ:
        if name.startswith("RETRY_"):
            monkeypatch.delenv(name)
    before = ExponentialBackoff().delay(1, Chance(0))
    monkeypatch.setenv("RETRY_BACKOFF_BASE_MS", "9")
    monkeypatch.setenv("RETRY_MAX_ATTEMPTS", "9")

    assert ExponentialBackoff().delay(1, Chance(0)) == before
    assert ExponentialBackoff().max_attempts == 5


@given(
    base=st.integers(0, 3_600_000),
    multiplier=st.floats(1, 10),
    jitter=st.floats(0, 100),
    attempt=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
def test_jitter_adds_at_most_its_part_of_the_delay(base, multiplier, jitter, attempt, seed):
    policy = ExponentialBackoff(
        base=timedelta(milliseconds=base),
        multiplier=multiplier,
        jitter_percent=jitter,
        ceiling=timedelta(hours=1),
    )

    plain = policy.delay(attempt, Chance(0))
    delay = policy.delay(attempt, Random(seed))

    assert timedelta(0) <= plain <= policy.ceiling
    rounding = timedelta(microseconds=2)
    assert plain <= delay + rounding
    assert delay <= plain * (1 + jitter / 100) + rounding


@given(base=st.integers(1, 10_000), multiplier=st.sampled_from([1.0, 1.5, 2.0, 3.0]), attempt=st.integers(1, 8))
def test_without_jitter_the_formula_is_exact(base, multiplier, attempt):
    policy = ExponentialBackoff(
        base=timedelta(milliseconds=base),
        multiplier=multiplier,
        jitter_percent=0,
        ceiling=timedelta(days=365),
    )

    delay = policy.delay(attempt, Random(1))

    assert milliseconds(delay) == pytest.approx(base * multiplier ** (attempt - 1), abs=0.001)


@given(attempt=st.integers(1, 10**9))
def test_the_ceiling_bounds_every_delay(attempt):
    policy = ExponentialBackoff(max_attempts=10**9, ceiling=timedelta(minutes=5))

    assert policy.delay(attempt, Chance(0)) <= timedelta(minutes=5)
    assert policy.delay(attempt, Chance(1)) <= timedelta(minutes=6)


def test_listed_delays_are_taken_one_by_one_and_the_last_stays():
    policy = ListedDelays(tuple(timedelta(seconds=each) for each in (1, 5, 30)), max_attempts=6)

    waits = [policy.delay(attempt, Chance(1)).total_seconds() for attempt in range(1, 7)]

    assert waits == [1, 5, 30, 30, 30, 30]


def test_a_list_without_delays_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        ListedDelays(())
