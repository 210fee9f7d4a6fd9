"""The clock that a test moves, and other sources that are the same in every run."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Final

from holdfast.contracts.ports import Ambient
from holdfast.contracts.times import from_ms, to_ms

START: Final = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""Where the clock of a test begins, unless the test says otherwise: noon of a Monday."""


class MovedClock:
    """Stands still until the test moves it. The database and the engine both read it."""

    def __init__(self, start: datetime) -> None:
        self._ms = self._start = to_ms(start)
        self._moves = 0

    def ms(self) -> int:
        """Milliseconds since 1970."""
        return self._ms

    def now(self) -> datetime:
        """The current instant in UTC."""
        return from_ms(self._ms)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        # A microsecond for each move: who has waited for 0.3 s sees at least 0.3 s, however floats are rounded.
        return (self._ms - self._start) / 1000 + self._moves / 1_000_000

    def move_to(self, ms: int) -> None:
        """Go forward to this time. The clock never goes back."""
        self._ms = max(self._ms, ms)
        self._moves += 1


class NumberedIds:
    """Identifiers that are counted."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def new(self, prefix: str) -> str:
        """``prefix_`` and the next number of this prefix."""
        self._given[prefix] += 1
        return f"{prefix}_{self._given[prefix]}"


def ambient_of(clock: MovedClock) -> Ambient:
    """This clock, numbered identifiers, and random numbers that are the same in every run."""
    return Ambient(clock, NumberedIds(), Random(0))  # noqa: S311 - jitter, the same in every run
