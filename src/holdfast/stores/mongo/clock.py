"""The server's clock. Leases and due times use it, so that the clocks of workers do not matter (I15).

An update uses the server's own time (``$$NOW``). An insert cannot, so it uses an estimate: the server's last reported
time plus the steady time that has passed since. The estimate is never ahead of the server's clock, and at most one
round trip behind it.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.contracts.times import duration_ms, from_ms, to_ms

_FRESH_MS: Final = 2_000
_BEST_FOR_MS: Final = 30_000
_ANOTHER_CLOCK_MS: Final = 1_000


# CLOCK_BOOTTIME also counts the time while this machine was suspended: it passed for the server too.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ms() -> float:
    """Milliseconds of a clock that never goes backwards; its zero is arbitrary."""
    return time.clock_gettime(_STEADY) * 1_000


class ServerClock:
    """An estimate of the server's time.

    ``skew`` is for tests: it is added wherever the store reads or uses the server's time, so that hours can pass.
    """

    def __init__(self) -> None:
        self.skew = timedelta(0)
        self._offset: float | None = None
        self._updated_at = 0.0
        self._offset_from = 0.0

    def update(self, server_time: datetime) -> None:
        """Take in the server's time from an answer that has just arrived."""
        at = steady_ms()
        offset = to_ms(server_time) - at
        self._updated_at = at
        # The fastest answer gives the best offset. But clocks drift, and another server has another clock.
        if (
            self._offset is None
            or offset > self._offset
            or self._offset - offset > _ANOTHER_CLOCK_MS
            or at - self._offset_from > _BEST_FOR_MS
        ):
            self._offset = offset
            self._offset_from = at

    def estimate(self) -> datetime | None:
        """The server's time; None when the last answer is too old."""
        at = steady_ms()
        if self._offset is None or at - self._updated_at > _FRESH_MS:
            return None
        return from_ms(int(at + self._offset)) + self.skew

    def now(self, later: timedelta = timedelta(0)) -> Any:  # noqa: ANN401 - an aggregation expression
        """The server's time plus ``later``, as an expression that the server evaluates."""
        milliseconds = duration_ms(later) + duration_ms(self.skew)
        return {"$add": ["$$NOW", milliseconds]} if milliseconds else "$$NOW"
