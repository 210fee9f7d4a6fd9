"""The model: each part of a cluster costs processor time for each event, and some parts cannot be divided.

A part is a station with servers (cores or processes). Its utilisation is events a second times seconds each, over its
servers. A part that is one process or one primary has one station for each copy of the whole (a shard, a cell).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MEASURED: Final = Path(__file__).parent / "measured.json"
TARGET: Final = 0.6
"""How busy a part may be in the plan. Queues grow without bound as a part comes near to 1."""


@dataclass(frozen=True, slots=True)
class Part:
    """``us`` is processor time for each event. ``most`` is how many cores one copy can use at all."""

    name: str
    us: float
    most: float
    alone: bool
    """Whether one copy has a bound, so that more events need more copies: one Redis, one primary."""

    def cores(self, rate: float) -> float:
        """Cores that are busy at this rate."""
        return rate * self.us / 1e6

    def copies(self, rate: float) -> int:
        """Copies (processes, Redis servers, primaries) that keep the part below the target."""
        return max(1, math.ceil(self.cores(rate) / (self.most * TARGET)))

    def limit(self) -> float:
        """Events a second at which one copy is completely busy."""
        return self.most * 1e6 / self.us


def parts(measured: dict[str, Any]) -> list[Part]:
    """The parts, with the sums of what intake alone and work alone cost."""
    intake, work = measured["intake_us"], measured["work_us"]
    return [
        Part("API processes", intake["api"], 1.0, alone=False),
        Part("worker processes", work["worker"], 1.0, alone=False),
        # Redis runs commands in one thread. mongod uses many cores, but one primary and one journal take all writes.
        Part("Redis (one thread each)", intake["redis"] + work["redis"], 1.0, alone=True),
        Part("MongoDB primaries", intake["mongod"] + work["mongod"], measured["primary_cores"], alone=True),
    ]


def cpu_of_an_event(measured: dict[str, Any]) -> float:
    """Processor time of one event over all parts, predicted from the parts measured alone."""
    return sum(part.us for part in parts(measured))


def first_to_give_way(measured: dict[str, Any]) -> Part:
    """Of the parts that cannot simply be started once more, the one with the lowest limit."""
    return min((part for part in parts(measured) if part.alone), key=Part.limit)


def load() -> dict[str, Any]:
    """The stored measurement."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found
