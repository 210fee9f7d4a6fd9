"""A schedule as a workload, and what a test wants to know about its ticks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast import Collection, Context, Done, EntryQuery, Job, Outcome, Page, Upsert, Workload
from holdfast.contracts.schedules import Schedule, Tick
from holdfast.contracts.times import isoformat


class Ticking(Workload[Tick]):
    """Counts how often each instant was worked: more than once would be seen in ``runs``."""

    contract = Tick
    collections: Sequence[Collection] = (Collection("runs", key="instant"),)

    def __init__(self, name: str = "nightly", **schedule: Any) -> None:
        self.name = name  # type: ignore[misc]
        self.queue, self.dead_letter_queue = f"{name}-main", f"{name}-dead"
        self.schedule = Schedule(name, **schedule)
        self.handled: list[Tick] = []

    def key(self, data: Tick) -> str:
        return data.key

    async def handle(self, job: Job[Tick], context: Context) -> Outcome:
        del context
        self.handled.append(job.data)
        return Done(effects=[Upsert("runs", f"{self.name} {isoformat(job.data.at)}", {}, add={"times": 1})])


async def ticks_of(store: Any, workload: str = "nightly") -> list[datetime]:
    """The instants of all ticks in the ledger, oldest first, each as often as it is there."""
    found, cursor = [], None
    while True:
        page = await store.find(EntryQuery(workload=workload), Page(500, cursor))
        found += [Tick.model_validate_json(entry.body) for entry in page.items]
        cursor = page.next
        if cursor is None:
            return sorted(tick.at for tick in found if not tick.manual)
