"""The server's clock: the one that leases and due times go by, whatever the worker's clock says (I15).

What the server decides, it dates itself (``$$NOW``). An insert cannot ask for the server's time, so it carries an
estimate: what the server said last, and the steady time that has passed since. The estimate is never ahead of the
server, and behind it by a round trip at most.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.contracts.times import duration_ms, from_ms, to_ms

_FRESH_MS: Final = 2_000
_BEST_FOR_MS: Final = 30_000
_ANOTHER_CLOCK_MS: Final = 1_000


# Time that a suspended machine slept through has passed for the server too.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ms() -> float:
    """Milliseconds that never go backwards, from an arbitrary beginning."""
    return time.clock_gettime(_STEADY) * 1_000


class ServerClock:
    """What is known of the server's time.

    ``skew`` is for tests: it is added wherever the store reads or uses the server's time, so that hours can pass.
    """

    def __init__(self) -> None:
        self.skew = timedelta(0)
        self._offset: float | None = None
        self._heard_at = 0.0
        self._anchored_at = 0.0

    def heard(self, told: datetime) -> None:
        """The server has just answered with its time."""
        at = steady_ms()
        offset = to_ms(told) - at
        self._heard_at = at
        # The answer that took the shortest way is the best; but clocks drift, and another server has another clock.
        if (
            self._offset is None
            or offset > self._offset
            or self._offset - offset > _ANOTHER_CLOCK_MS
            or at - self._anchored_at > _BEST_FOR_MS
        ):
            self._offset = offset
            self._anchored_at = at

    def estimate(self) -> datetime | None:
        """The server's time; None when it was asked too long ago."""
        at = steady_ms()
        if self._offset is None or at - self._heard_at > _FRESH_MS:
            return None
        return from_ms(int(at + self._offset)) + self.skew

    def now(self, later: timedelta = timedelta(0)) -> Any:  # noqa: ANN401 - an aggregation expression
        """The server's time, or a time later than that, as an expression that the server evaluates."""
        milliseconds = duration_ms(later) + duration_ms(self.skew)
        return {"$add": ["$$NOW", milliseconds]} if milliseconds else "$$NOW"
