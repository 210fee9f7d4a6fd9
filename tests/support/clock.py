"""Time that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.contracts.times import duration_ms, from_ms, to_ms

START = datetime(2026, 2, 26, 12, 0, tzinfo=UTC)


class ManualClock:
    """A clock for ``Database(..., now=clock.ms)``, and for the engine's ``Ambient``."""

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
