"""Retry policies. They return decisions; they never sleep and never write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from .ports import Random


class RetryPolicy(Protocol):
    """How often to try, and how long to wait in between."""

    @property
    def max_attempts(self) -> int:
        """The attempt after which a failing job is dead-lettered."""
        ...

    def delay(self, attempt: int, random: Random) -> timedelta:
        """The wait after the failed ``attempt`` (1 is the first)."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """``base * multiplier^(attempt-1)``, plus a random part of 0 to ``jitter_percent`` of it."""

    max_attempts: int = 5
    base: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    jitter_percent: float = 20.0
    ceiling: timedelta = timedelta(hours=1)

    def delay(self, attempt: int, random: Random) -> timedelta:
        """The formula of rule C31. ``ceiling`` bounds the wait before the jitter, for policies with many attempts."""
        growth = self.multiplier ** min(attempt - 1, 64)
        plain = min(self.base.total_seconds() * growth, self.ceiling.total_seconds())
        return timedelta(seconds=plain + random.uniform(0.0, plain * self.jitter_percent / 100))


@dataclass(frozen=True, slots=True)
class ListedDelays:
    """The waits, one by one. The last wait is used for all later attempts."""

    delays: tuple[timedelta, ...]
    max_attempts: int = 5

    def __post_init__(self) -> None:
        if not self.delays:
            message = "ListedDelays needs at least one delay."
            raise ValueError(message)

    def delay(self, attempt: int, random: Random) -> timedelta:
        """The ``attempt``-th wait. No jitter: the list is the contract."""
        del random
        return self.delays[min(attempt, len(self.delays)) - 1]
