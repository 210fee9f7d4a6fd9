"""Fairness: where a new job stands, so that nobody's backlog holds up another's few.

A job's place is its ``priority`` in the queue: smaller goes first. Each lane counts its own places, from the place that
is being worked on now or from behind its own last job, whichever is later. So a lane of ten thousand and a lane of ten
take turns, and within a lane the order is kept. Jobs of different priorities stand in lanes of their own.

The places are estimates, made from what was a moment ago. That costs nothing: they only decide who goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.ports import Ledger

LAST_PLACE: Final = 2**21 - 1
"""BullMQ knows no greater priority. Whoever stands here is served in the order of arrival."""

_HEAD_START: Final = 10


def lane_of(lane: str | None, priority: int) -> str | None:
    """The lane of a job with this priority: one for each, so that an urgent job passes its own lane's others."""
    return None if lane is None else f"{lane}/{priority}"


async def in_line(ledger: Ledger, entries: Sequence[NewEntry]) -> list[NewEntry]:
    """The entries with their places. Those that stand in no lane are left as they are."""
    lanes: dict[str, list[str]] = {}
    for entry in entries:
        if entry.lane is not None and entry.lane not in lanes.setdefault(entry.workload, []):
            lanes[entry.workload].append(entry.lane)
    if not lanes:
        return list(entries)
    lines = {workload: await ledger.lines(workload, names) for workload, names in lanes.items()}
    ends = {workload: dict(line.ends) for workload, line in lines.items()}
    placed = []
    for entry in entries:
        if entry.lane is None:
            placed.append(entry)
            continue
        begin = max(0, lines[entry.workload].front - _HEAD_START) + entry.priority
        end = ends[entry.workload].get(entry.lane, -1)
        place = min(max(begin, end + 1), LAST_PLACE)
        ends[entry.workload][entry.lane] = place
        placed.append(replace(entry, priority=place))
    return placed
