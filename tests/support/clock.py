"""Clocks that a test moves."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from holdfast.contracts.times import duration_ms, from_ms, to_ms

START = datetime(2026, 2, 26, 12, 0, tzinfo=UTC)


class ManualClock:
    """Stands still until it is moved. It is for ``Database(..., now=clock.ms)`` and for the engine's ``Ambient``."""

    def __init__(self, start: datetime = START) -> None:
        self._ms = to_ms(start)

    def ms(self) -> int:
        return self._ms

    def now(self) -> datetime:
        return from_ms(self._ms)

    def monotonic(self) -> float:
        return self._ms / 1000

    def advance(self, duration: timedelta) -> None:
        self._ms += duration_ms(duration)


class SettableClock:
    """Goes on as the machine's does, ahead of it by as much as a test says."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return time.monotonic()
