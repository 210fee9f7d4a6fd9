"""Maintenance: repairs what crashes, lost queues and lost workers leave behind, and submits the ticks of schedules.

Every step is idempotent or a compare-and-set, so any number of processes may run it at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import DueEntry, Interrupted, Overdue, Status
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.queues import Presence, QueueJob, WorkedElsewhere
from holdfast.contracts.transitions import Ending, Publish, Release
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events

from .elsewhere import Elsewhere
from .entries import queue_job
from .hooks import Hooks
from .projection import Projection
from .schedules import Schedules
from .settling import end
from .transitions import Decider, RunningJob

_SWEEP_BATCH: Final = 500
_SWEEP_SOME: Final = 200
_PRUNE_BATCH: Final = 1000
_LONG_QUEUE: Final = 1000


@dataclass(slots=True)
class MaintenanceReport:
    """What one round did."""

    ticks: int = 0
    recovered: int = 0
    worked_elsewhere: int = 0
    republished: int = 0
    expired: int = 0
    letters_published: int = 0
    letters_unpublished: int = 0
    pruned: int = 0

    @property
    def anything(self) -> bool:
        """Whether there was something to do."""
        return any(getattr(self, each.name) for each in fields(self))


class Maintenance:
    """Looks after the ledger and the queues."""

    def __init__(  # noqa: PLR0913 - what it looks after, and how often
        self,
        store: Store,
        broker: Broker,
        workloads: Sequence[Workload[Any]],
        ambient: Ambient,
        *,
        schedules: Schedules | None = None,
        interval: timedelta = timedelta(seconds=1),
        again_after: timedelta = timedelta(seconds=30),
        prune_every: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store = store
        self._broker = broker
        self._workloads = tuple(workloads)
        self._ambient = ambient
        self._schedules = schedules
        self._interval = interval
        self._again_after = again_after
        self._prune_every = prune_every.total_seconds()
        self._pruned_at: float | None = None
        self._projection = Projection(store, broker)
        self._elsewhere = Elsewhere(store, broker, ambient)
        self._name = ambient.ids.new("maintenance")

    async def run(self, stop: asyncio.Event) -> None:
        """Do rounds until ``stop`` is set. A store or a queue that is away does not end them."""
        while not stop.is_set():
            try:
                report = await self.round()
                if report.anything:
                    emit(events.MAINTENANCE_DONE, **{each.name: getattr(report, each.name) for each in fields(report)})
            except BrokerUnavailable as error:
                emit(events.QUEUE_UNAVAILABLE, where="maintenance", reason=error.message)
            except StoreUnavailable as error:
                emit(events.STORE_UNAVAILABLE, where="maintenance", reason=error.message)
            except Exception as error:  # noqa: BLE001 - maintenance repairs the rest, so it must go on
                emit_failure(events.MAINTENANCE_FAILED, error)
            await _sleep(stop, self._interval)

    async def round(self) -> MaintenanceReport:
        """Every step once. If the queue is away, the steps that need only the store are done before the error."""
        report = MaintenanceReport()
        if self._schedules is not None:
            report.ticks = await self._schedules.round()
        away = await self._detect_queue_reset()
        for workload in self._workloads:
            if away is None:
                away = await self._repair_queues(workload, report)
            report.expired += await self._expire(workload)
        if away is not None:
            raise away
        if self._time_to_prune():  # only with the queue, so that the same letters are removed there
            report.pruned = await self._prune()
        return report

    async def _detect_queue_reset(self) -> BrokerUnavailable | None:
        try:
            epoch = await self._broker.epoch()
        except BrokerUnavailable as error:
            return error
        if await self._store.detect_queue_reset(epoch):
            emit(events.QUEUE_LOST)
        return None

    async def _repair_queues(self, workload: Workload[Any], report: MaintenanceReport) -> BrokerUnavailable | None:
        """Bring the queues to the state of the store. Return the error if a queue is away."""
        try:
            report.recovered += await self._broker.recover(workload.queue)
            report.worked_elsewhere += await self._elsewhere.follow(workload)
            await self._republish(workload, report)
            report.letters_published += await self._projection.publish(workload)
            report.letters_unpublished += await self._projection.tidy(workload)
        except BrokerUnavailable as error:
            return error
        return None

    async def _republish(self, workload: Workload[Any], report: MaintenanceReport) -> None:
        """Publish what the queue has lost, and settle what another system's worker has finished.

        A long queue probably still has the jobs, and sweeping must not become its main work: then a few each round.
        """
        backlog = (await self._broker.depth(workload.queue, most=_LONG_QUEUE + 1)).ready > _LONG_QUEUE
        size = _SWEEP_SOME if backlog else _SWEEP_BATCH
        while due := await self._store.due(workload.name, size, again_after=self._again_after):
            crash_point("maintenance.swept")
            found = list(zip(due, await self._look_up(workload, due), strict=True))
            ended = [(entry, each) for entry, each in found if isinstance(each, WorkedElsewhere)]
            report.worked_elsewhere += await self._elsewhere.settle(workload, ended)
            # An entry that another system writes stays open until that system settles it, whatever the queue shows.
            unsettled = [pair for pair in found if pair[0].foreign or not isinstance(pair[1], WorkedElsewhere)]
            missing = [entry for entry, each in unsettled if each is not Presence.OPEN]
            self._elsewhere.warn_of_republishing(workload, len(missing))
            if missing:
                await self._broker.publish(workload.queue, [_queue_job_of(workload, entry) for entry in missing])
            crash_point("maintenance.republished")
            await self._apply_enqueued(workload, [entry for entry, _ in unsettled])
            report.republished += len(missing)
            if len(due) < _SWEEP_BATCH or backlog:
                break

    async def _look_up(self, workload: Workload[Any], due: Sequence[DueEntry]) -> list[Presence | WorkedElsewhere]:
        return await self._broker.look_up(workload.queue, [entry.job_id for entry in due])

    async def _apply_enqueued(self, workload: Workload[Any], due: Sequence[DueEntry]) -> None:
        """Apply the effects of publishing for jobs that came while the queue was away."""
        hooks = Hooks(workload)
        effects = [
            effect
            for entry in due
            if entry.attempt_count == 0
            for effect in hooks.effects_of(Publish(), entry.job_id, entry.body, entry.generation)
        ]
        if effects:
            await self._store.apply(effects)

    async def _expire(self, workload: Workload[Any]) -> int:
        """Expire jobs that wait past their deadline, also when no worker runs (I10)."""
        job_ids = await self._store.overdue(workload.name, _SWEEP_BATCH)
        if not job_ids:
            return 0
        decider = Decider(workload, self._ambient.random)

        def decide(job: RunningJob) -> Ending:
            if isinstance(job.claim, Overdue | Interrupted):
                return decider.without_attempt(job)
            return Release()  # the job got a new deadline in the meantime: leave it as it was

        settled, _ = await end(self._store, workload, job_ids, decide, worker=self._name)
        expired = [each.job_id for each in settled if each.status is Status.EXPIRED]
        for job_id in expired:
            emit(events.JOB_EXPIRED, workload=workload.name, job_id=job_id)
        if expired:
            with contextlib.suppress(BrokerUnavailable):  # a worker will find them settled
                await self._broker.remove(workload.queue, expired)
        return len(expired)

    def _time_to_prune(self) -> bool:
        now = self._ambient.clock.monotonic()
        if self._pruned_at is not None and now - self._pruned_at < self._prune_every:
            return False
        self._pruned_at = now
        return True

    async def _prune(self) -> int:
        pruned = await self._store.prune(_PRUNE_BATCH)
        known = {workload.name: workload for workload in self._workloads}
        for name, letter_ids in pruned.letters.items():
            if name in known:
                await self._projection.unpublish(known[name], letter_ids)
        return pruned.entries + pruned.records + sum(map(len, pruned.letters.values()))


def _queue_job_of(workload: Workload[Any], entry: DueEntry) -> QueueJob:
    return queue_job(
        workload,
        entry.job_id,
        entry.body,
        attempt=entry.attempt_count + 1,
        priority=entry.priority,
        delay=entry.after,
    )


async def _sleep(stop: asyncio.Event, interval: timedelta) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(interval.total_seconds()):
            await stop.wait()
