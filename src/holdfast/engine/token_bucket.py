"""A token bucket: a rate with a burst, for what one process counts by itself."""

from __future__ import annotations

import math


class TokenBucket:
    """Holds ``burst`` tokens at most, and gets ``rate`` new tokens each second. It begins full.

    The rate and the burst are given with each call, so that a change of a limit counts at once.
    """

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._at = 0.0

    def take(self, now: float, rate: float, burst: float) -> float:
        """Take a token and return 0; or, if there is none, return the seconds until there is one.

        ``now`` is in seconds that never go backwards.
        """
        self._tokens = min(burst, self._tokens + (now - self._at) * rate)
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / rate
        self._tokens -= 1
        return 0.0

    def charge(self, tokens: int) -> None:
        """Take more tokens after :meth:`take`. This may leave a debt, and later calls wait until it is paid."""
        self._tokens -= tokens
