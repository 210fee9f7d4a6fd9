"""A small simulation: events arrive at random and pass through the parts in order, each a line with some servers.

It shows what the plan of :mod:`.model` cannot: how long an event waits as a part comes near to its limit.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Sequence
from typing import Final

from .model import Part

_CHANCE: Final = 20_261_118


def delays(parts: Sequence[Part], copies: Sequence[int], rate: float, events: int = 20_000) -> tuple[float, float]:
    """Median and 99th percentile of the time through all parts, in milliseconds.

    Service times are exponential around the measured cost: requests differ, and the true spread was not measured.
    """
    chance = random.Random(_CHANCE)
    now, arrivals = 0.0, []
    for _ in range(events):
        now += chance.expovariate(rate)
        arrivals.append(now)
    leaving = list(arrivals)
    for part, count in zip(parts, copies, strict=True):
        servers = max(1, round(count * part.most))
        free = [0.0] * servers
        order = sorted(range(events), key=leaving.__getitem__)
        for event in order:
            begin = max(leaving[event], heapq.heappop(free))
            leaving[event] = begin + chance.expovariate(1e6 / part.us)
            heapq.heappush(free, leaving[event])
    times = sorted(1000 * (end - start) for start, end in zip(arrivals, leaving, strict=True))
    return statistics.median(times), times[int(len(times) * 0.99)]
