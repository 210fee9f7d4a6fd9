"""Example workloads for tests, written with the public API alone, and a job of theirs inside the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from holdfast import (
    Collection,
    Context,
    Done,
    Expire,
    Job,
    JobState,
    ListedDelays,
    Outcome,
    Transition,
    Upsert,
    Workload,
)
from holdfast.contracts.ledger import Claimed
from holdfast.engine.transitions import RunningJob

from .clock import START

Script = Callable[[Job[Any]], Awaitable[Outcome] | Outcome]

RETRY_AFTER = timedelta(seconds=10)


class Parcel(BaseModel):
    """A small contract that has a place for the attempt's number."""

    id: str
    place: str = "depot"
    seen_at: int = 0
    attempt: int = 1


class Parcels(Workload[Parcel]):
    """Does what its script says; by default it writes down where the parcel is."""

    name = "parcels"
    contract = Parcel
    queue = "parcels-main"
    dead_letter_queue = "parcels-dead"
    collections: Sequence[Collection] = (
        Collection("parcel_places", key="parcelId", indexes=(("place",), ("place", "seenAt"))),
    )
    indexed_labels: Sequence[str] = ("place",)

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or deliver
        self.retry = ListedDelays((RETRY_AFTER,), max_attempts=3)
        self.handled: list[Job[Parcel]] = []

    def key(self, data: Parcel) -> str:
        return f"parcel:{data.id}"

    def labels(self, data: Parcel) -> dict[str, str]:
        return {"place": data.place, "traceId": f"trace-{data.id}"}

    async def handle(self, job: Job[Parcel], context: Context) -> Outcome:
        self.handled.append(job)
        outcome = self.script(job)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def on_transition(self, transition: Transition, job: JobState[Parcel]) -> Sequence[Upsert]:
        return [Upsert("parcel_places", job.data.id, {"place": "lost"})] if isinstance(transition, Expire) else []


class BatchedParcels(Parcels):
    """The same, many at a time; ``batch_script`` handles a whole batch."""

    batch_size = 10

    def __init__(self, batch_script: Callable[[Sequence[Job[Parcel]]], Awaitable[Any]]) -> None:
        super().__init__()
        self.batch_script = batch_script
        self.batches: list[list[str]] = []

    async def handle_batch(self, jobs: Sequence[Job[Parcel]], contexts: Sequence[Context]) -> Sequence[Outcome]:
        self.batches.append([job.data.id for job in jobs])
        return await self.batch_script(jobs)


def deliver(job: Job[Parcel]) -> Outcome:
    """Write down where the parcel is."""
    return Done([Upsert("parcel_places", job.data.id, {"place": job.data.place})], result={"at": job.data.place})


def running(key: str = "parcel:p", *, generation: int = 1, attempt: int = 1, body: str = "") -> RunningJob:
    """A claimed job whose body nobody has read."""
    return RunningJob(Claimed("p", key, generation, 1, attempt, body, {}, START, None), None)
