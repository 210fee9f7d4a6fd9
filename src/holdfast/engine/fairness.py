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


def fairness_key_of(fairness_key: str | None, priority: int) -> str | None:
    """The lane of a job with this priority: one for each, so that an urgent job passes its own lane's others."""
    return None if fairness_key is None else f"{fairness_key}/{priority}"


async def with_places(ledger: Ledger, entries: Sequence[NewEntry]) -> list[NewEntry]:
    """The entries with their places. Those that stand in no lane are left as they are."""
    fairness_keys: dict[str, list[str]] = {}
    for entry in entries:
        if entry.fairness_key is not None and entry.fairness_key not in fairness_keys.setdefault(entry.workload, []):
            fairness_keys[entry.workload].append(entry.fairness_key)
    if not fairness_keys:
        return list(entries)
    lines = {workload: await ledger.queue_places(workload, names) for workload, names in fairness_keys.items()}
    ends = {workload: dict(line.ends) for workload, line in lines.items()}
    placed = []
    for entry in entries:
        if entry.fairness_key is None:
            placed.append(entry)
            continue
        begin = max(0, lines[entry.workload].front - _HEAD_START) + entry.priority
        end = ends[entry.workload].get(entry.fairness_key, -1)
        place = min(max(begin, end + 1), LAST_PLACE)
        ends[entry.workload][entry.fairness_key] = place
        placed.append(replace(entry, priority=place))
    return placed
