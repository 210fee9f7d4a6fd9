"""Fairness: the place of a new job in the queue, so that one tenant's many jobs do not delay another's few.

A job's place is its ``priority`` in the queue: a smaller number goes first. Each fairness key counts its own places.
Its next place is behind its own last job, and not before the place that is being worked on now. So a key with ten
thousand jobs and a key with ten jobs take turns, and the jobs of one key keep their order. Jobs of one tenant with
different priorities have different fairness keys.

The places are estimates from a moment ago. That does no harm: places only decide which job goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.ports import Ledger

LAST_PLACE: Final = 2**21 - 1
"""The greatest priority of BullMQ. Jobs with this place are worked in the order of arrival."""

_HEAD_START: Final = 10


def fairness_key_of(fairness_key: str | None, priority: int) -> str | None:
    """The fairness key with the priority in it, so that an urgent job passes other jobs of the same owner."""
    return None if fairness_key is None else f"{prefix_of(fairness_key)}{priority}"


def prefix_of(owner: str) -> str:
    """How all fairness keys of this owner begin, whatever the priority."""
    return f"{owner}/"


async def with_places(ledger: Ledger, entries: Sequence[NewEntry]) -> list[NewEntry]:
    """The entries with their places. Entries without a fairness key are left as they are."""
    fairness_keys: dict[str, list[str]] = {}
    for entry in entries:
        if entry.fairness_key is not None and entry.fairness_key not in fairness_keys.setdefault(entry.workload, []):
            fairness_keys[entry.workload].append(entry.fairness_key)
    if not fairness_keys:
        return list(entries)
    places = {workload: await ledger.queue_places(workload, names) for workload, names in fairness_keys.items()}
    ends = {workload: dict(place.ends) for workload, place in places.items()}
    placed = []
    for entry in entries:
        if entry.fairness_key is None:
            placed.append(entry)
            continue
        begin = max(0, places[entry.workload].front - _HEAD_START) + entry.priority
        end = ends[entry.workload].get(entry.fairness_key, -1)
        place = min(max(begin, end + 1), LAST_PLACE)
        ends[entry.workload][entry.fairness_key] = place
        placed.append(replace(entry, priority=place))
    return placed
