"""Execution: the steps of a batch of deliveries.

    take -> claim -> (adopt) -> handle -> decide -> settle the ledger -> acknowledge the queue -> publish dead letters

The number of slots limits the handlers that run. A slow job holds only its own slot: finished jobs are settled together
with the next flush, and free slots are filled at once. ``holdfast.worker`` runs this loop and stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, assert_never

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.entries import usable_job_id
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.jobs import Job
from holdfast.contracts.ledger import (
    AlreadySettled,
    Claimed,
    ClaimResult,
    Exhausted,
    Interrupted,
    Lease,
    NotNow,
    Overdue,
    Status,
    Unrecorded,
)
from holdfast.contracts.outcomes import Halt, Outcome
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Finished, Handling
from holdfast.contracts.redaction import scrub
from holdfast.contracts.transitions import Ending, Release, Settlement
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events

from .adoption import adopt, of_newer_version
from .context import JobContext, SharedContext
from .handling import WHEN_NEWER, handle, handle_batch, job_of
from .hooks import Hooks, policy_limit
from .settling import COMMIT_WAIT, Ended, Settler
from .transitions import Decider, RunningJob, attempt_limit

_BATCH: Final = 50
_TAKE_WAIT: Final = timedelta(seconds=1)
_BACK_OFF: Final = timedelta(seconds=1)
_LAST_WAIT: Final = timedelta(seconds=5)
_LOOK_EVERY: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How one worker process runs a workload."""

    worker: str
    concurrency: int = 100
    lease: timedelta = timedelta(seconds=30)
    pipelines: int = 1
    """How many batches are sent to a server at the same time. With SQLite, more than one brings nothing."""


class Execution:
    """Runs one workload in one process. ``ended`` is called with the keys of jobs that have ended here."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that the composition root puts together
        self,
        workload: Workload[Any],
        store: Store,
        broker: Broker,
        ambient: Ambient,
        options: ExecutionOptions,
        ended: Ended | None = None,
    ) -> None:
        self._workload = workload
        self._store = store
        self._broker = broker
        self._clock = ambient.clock
        self._options = options
        self._decider = Decider(workload, ambient.random)
        self._hooks = Hooks(workload)
        self._most_attempts = policy_limit(workload)
        self._concurrency = min(options.concurrency, workload.concurrency or options.concurrency)
        # With few slots, several pipelines would only make the batches smaller.
        self._pipelines = min(options.pipelines, max(1, self._concurrency // _BATCH))
        hold = workload.timeout + _LAST_WAIT
        self._context = SharedContext(workload.name, store, broker, ambient, options.worker, hold)
        self._settler = Settler(
            workload,
            store,
            broker,
            ambient.clock,
            self._decider,
            left=self._leave,
            ended=ended,
            parallel=self._pipelines,
            in_flight=lambda: len(self._running),
        )
        self._running = self._context.running
        self._reserved = 0
        self._settling = 0
        self._slot_freed = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """How many jobs are claimed and not yet settled."""
        return len(self._running)

    # --- the loop -----------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, drain: timedelta) -> None:
        """Work until ``stop`` is set; then let running jobs finish for ``drain`` and release the rest (I17)."""
        self._context.reporting.start()
        helpers = [asyncio.create_task(self._keep_leases()), asyncio.create_task(self._wake_on(stop))]
        if self._workload.stoppable:
            helpers.append(asyncio.create_task(self._watch_cancellations()))
        pipelines = [asyncio.create_task(self._pipeline(stop)) for _ in range(1, self._pipelines)]
        try:
            await self._pipeline(stop)
            await asyncio.gather(*pipelines)
            await self._wind_down(drain)
        finally:
            # Nothing is in flight now, or the store was away for longer than the drain time.
            for task in (*pipelines, *helpers):
                task.cancel()
            await asyncio.gather(*pipelines, *helpers, self._settler.stop(), return_exceptions=True)

    async def _pipeline(self, stop: asyncio.Event) -> None:
        """One round after another."""
        while not stop.is_set():
            try:
                await self._round(_TAKE_WAIT)
            except BrokerUnavailable as error:
                emit(events.QUEUE_UNAVAILABLE, where="worker", queue=self._workload.queue, reason=error.message)
                await _pause(stop)
            except StoreUnavailable as error:
                emit(events.STORE_UNAVAILABLE, where="worker", reason=error.message)
                await _pause(stop)
            except Exception as error:  # noqa: BLE001 - an unexpected error of one batch must not end the worker
                emit_failure(events.WORKER_FAULT, error, workload=self._workload.name)
                await _pause(stop)

    async def _wake_on(self, stop: asyncio.Event) -> None:
        """Wake a worker that waits for a free slot, so that it stops too."""
        await stop.wait()
        self._slot_freed.set()

    async def _round(self, wait: timedelta) -> int:
        """Fill the free slots with jobs of the queue, and return how many came. Wait this long for the first."""
        free = self._free_slots()
        if free <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()
            return 0
        if free < self._concurrency // 2:
            free = await self._gather_slots()
            if free <= 0:  # another pipeline has them
                return 0
        size = min(free, _BATCH)
        self._reserved += size
        try:
            deliveries = await self._broker.take(
                self._workload.queue,
                size,
                wait=wait,
                lease=self._options.lease,
                rate=self._workload.rate_limit,
            )
            if deliveries:
                crash_point("worker.taken")
                pairs = await self._claim_or_adopt(deliveries)
                crash_point("worker.claimed")
                await self._start(pairs)
            return len(deliveries)
        finally:
            self._reserved -= size
            if self._pipelines > 1:
                self._slot_freed.set()

    def _free_slots(self) -> int:
        """How many more jobs may be taken. A job whose handler has returned occupies no slot while it is settled.

        So the next jobs are claimed while the last ones are committed. No more jobs than there are slots may wait to be
        settled: a store that is slow or away stops the taking. With a single slot, each job sees what the job before it
        has committed: people choose one slot for that.
        """
        handled = min(self._settling, self._concurrency) if self._concurrency > 1 else 0
        return self._concurrency - (len(self._running) - handled) - self._reserved

    async def _gather_slots(self) -> int:
        """Wait a moment until half of the slots are free, and return how many are.

        All slots are in use, so jobs wait anyway. Jobs that are taken together share their reads and commits.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_WAIT.total_seconds()):
                while self._free_slots() < self._concurrency // 2:
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
        return self._free_slots()

    async def _claim_or_adopt(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, ClaimResult]]:
        """The claims in the order of the deliveries, so that two jobs for one record are worked in their order.

        If the store is away, the deliveries return to the queue.
        """
        # Numbers that the queue counted name no entry: after a queue was lost, other jobs get the same numbers.
        named = [position for position, delivery in enumerate(deliveries) if usable_job_id(delivery.job_id)]
        try:
            found = await self._claim([deliveries[position].job_id for position in named], self._most_attempts)
            known = zip(named, found, strict=True)
            claims: dict[int, ClaimResult] = {at: each for at, each in known if not isinstance(each, Unrecorded)}
            unknown = [position for position in range(len(deliveries)) if position not in claims]
            for position in [each for each in unknown if of_newer_version(self._workload, deliveries[each])]:
                claims[position] = NotNow(deliveries[position].job_id, WHEN_NEWER)
                unknown.remove(position)
            if unknown:
                job_ids = await adopt(self._store, self._workload, [deliveries[position] for position in unknown])
                claims |= zip(unknown, await self._claim(job_ids, self._most_attempts), strict=True)
            pairs = [(delivery, claims[position]) for position, delivery in enumerate(deliveries)]
            own_limits = type(self._workload).max_attempts is not Workload.max_attempts
            return await self._within_limits(pairs) if own_limits else pairs
        except StoreUnavailable:
            await self._broker.settle([Acknowledgement(delivery, Again(_BACK_OFF)) for delivery in deliveries])
            raise

    async def _claim(self, job_ids: Sequence[str], max_attempts: int) -> Sequence[ClaimResult]:
        worker, lease = self._options.worker, self._options.lease
        return await self._store.claim(
            self._workload.name, job_ids, worker=worker, lease=lease, max_attempts=max_attempts
        )

    async def _within_limits(
        self,
        pairs: Sequence[tuple[Delivery, ClaimResult]],
    ) -> list[tuple[Delivery, ClaimResult]]:
        """Do not run a job again if lost workers have used up the job's own limit of attempts (I6).

        The claim was made with the limit of the retry policy, which is higher. The claim is undone, and made again with
        the job's own limit, which opens no attempt. The first attempt is always within the limit: its body is not read.
        """
        within: list[tuple[Delivery, ClaimResult]] = []
        for delivery, claim in pairs:
            if isinstance(claim, Claimed) and claim.attempt > 1:
                limit = attempt_limit(self._workload, self._hooks.job_of(claim))
                if claim.attempt > limit:
                    lease = Lease(claim.job_id, claim.fence)
                    await self._store.settle([Settlement(self._workload.name, lease, Release())])
                    within += [(delivery, each) for each in await self._claim([claim.job_id], limit)]
                    continue
            within.append((delivery, claim))
        return within

    async def _start(self, pairs: Sequence[tuple[Delivery, ClaimResult]]) -> None:
        """Start the next step of each delivery, by its claim."""
        to_handle: list[JobContext] = []
        not_ours: list[Acknowledgement] = []
        now = self._clock.monotonic()
        for delivery, claim in pairs:
            match claim:
                case Claimed():
                    job = job_of(self._workload, claim)
                    running = RunningJob(claim, job if isinstance(job, Job) else None, delivery, now)
                    self._running[claim.job_id] = running
                    if isinstance(job, Job):
                        to_handle.append(JobContext(self._context, running, job))
                    else:
                        self._finish(running, self._decider.decide(job, running))
                case Exhausted() | Interrupted() | Overdue():
                    running = RunningJob(claim, self._hooks.job_of(claim), delivery, now)
                    self._running[claim.job_id] = running
                    self._finish(running, self._decider.without_attempt(running))
                case NotNow() | AlreadySettled() | Unrecorded():
                    not_ours.append(Acknowledgement(delivery, self._not_ours(delivery, claim)))
                case _ as never:
                    assert_never(never)
        size = self._workload.batch_size or 1
        for first in range(0, len(to_handle), size):
            group = to_handle[first : first + size]
            task = asyncio.create_task(self._handle(group))
            for each in group:
                each.running.task = task
        if not_ours:
            await self._broker.settle(not_ours)

    def _not_ours(self, delivery: Delivery, claim: NotNow | AlreadySettled | Unrecorded) -> Handling:
        """What the queue does with a job that we could not claim."""
        match claim:
            case NotNow():
                return Again(claim.after)
            case Unrecorded():  # the entry was adopted a moment ago and is gone: deliver the job again
                return Again(_BACK_OFF)
            case AlreadySettled():  # only a processed job has a result
                processed = claim.status is Status.PROCESSED
                result = self._hooks.repeated(claim.result) if processed else "null"
                return Finished(result, self._hooks.letter_body(delivery.data))

    # --- handling -----------------------------------------------------------------------------------------

    async def _handle(self, group: Sequence[JobContext]) -> None:
        """Call the handler, and give the jobs to the settler. Without a batch handler, the group is one job."""
        if self._workload.batch_size is None:
            outcomes: Sequence[Outcome] = [await handle(self._workload, each) for each in group]
        else:
            outcomes = await handle_batch(self._workload, group)
        halt = next((outcome for outcome in outcomes if isinstance(outcome, Halt)), None)
        if halt is not None:
            await self._halt(halt)
        for each, outcome in zip(group, outcomes, strict=True):
            if each.reported:
                await each.flush()
            transition = self._decider.decide(each.end(outcome), each.running)
            crash_point("worker.handled")
            self._finish(each.running, transition)

    async def _halt(self, halt: Halt) -> None:
        """Pause the queue before the job returns to it. A queue that is away delivers nothing anyway."""
        reason = scrub(f"{halt.code}: {halt.message}")
        try:
            await self._broker.pause(self._workload.queue, reason=reason)
        except BrokerUnavailable as error:
            emit(events.QUEUE_UNAVAILABLE, where="halt", queue=self._workload.queue, reason=error.message)
        emit(events.QUEUE_HALTED, workload=self._workload.name, queue=self._workload.queue, reason=reason)

    def _finish(self, running: RunningJob, transition: Ending) -> None:
        """Give the job to the settler. Its slot is free: see :meth:`_free_slots`."""
        if self._running.get(running.claim.job_id) is not running or running.transition is not None:
            return  # the lease was lost while the handler ran, or the handler returned while it was being cancelled
        running.transition = transition
        self._settling += 1
        self._settler.add(running)
        self._slot_freed.set()

    def _leave(self, running: RunningJob) -> None:
        if self._running.get(running.claim.job_id) is running:
            del self._running[running.claim.job_id]
            self._settling -= running.transition is not None
        self._slot_freed.set()

    # --- leases -------------------------------------------------------------------------------------------

    async def _keep_leases(self) -> None:
        """Prolong the leases of jobs in flight; stop work on those that were lost."""
        while True:
            await asyncio.sleep(self._options.lease.total_seconds() / 3)
            await self._renew_leases()

    async def _renew_leases(self) -> None:
        jobs = list(self._running.values())
        if not jobs:
            return
        try:
            lost = await self._store.renew(self._workload.name, [each.lease for each in jobs], self._options.lease)
            deliveries = [each.delivery for each in jobs if each.delivery is not None]
            await self._broker.renew(deliveries, self._options.lease)
        except Exception as error:  # noqa: BLE001 - any error: the next renewal tries again
            emit(events.STORE_UNAVAILABLE, where="lease", reason=f"{type(error).__name__}: {error}")
            return
        for lease in lost:
            self._abandon(lease)

    async def _watch_cancellations(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY.total_seconds())
            await self._look_for_cancellations()

    async def _look_for_cancellations(self) -> None:
        """Learn which of the jobs in flight their senders have cancelled: one look at the ledger for all of them."""
        jobs = [each for each in self._running.values() if each.transition is None]
        try:
            if jobs:
                await self._context.look_for_cancellations(jobs)
        except Exception as error:  # noqa: BLE001 - any error: the next look tries again
            emit(events.STORE_UNAVAILABLE, where="cancellation", reason=f"{type(error).__name__}: {error}")

    def _abandon(self, lease: Lease) -> None:
        """Stop the work on a job that another worker owns now."""
        running = self._running.get(lease.job_id)
        if running is None or running.lease != lease or running.transition is not None:
            return  # settled in the meantime, or about to be: the fence decides
        emit(events.ATTEMPT_STALE, workload=self._workload.name, job_id=lease.job_id, where="lease")
        if running.task is not None and self._workload.batch_size is None:
            running.task.cancel()
        self._leave(running)

    # --- stopping -----------------------------------------------------------------------------------------

    async def _wind_down(self, drain: timedelta) -> None:
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=drain.total_seconds())
        for task in tasks:
            task.cancel()
        if tasks:
            # A handler that ignores its cancellation counts no more: its claim is undone, and the fence does the rest.
            await asyncio.wait(tasks, timeout=_LAST_WAIT.total_seconds())
        for running in [each for each in self._running.values() if each.task in tasks]:
            self._finish(running, self._given_up(running))
        await self._context.settle()
        with contextlib.suppress(TimeoutError):  # the store is away: the leases will run out
            async with asyncio.timeout(max(drain, _LAST_WAIT).total_seconds()):
                await self._all_settled()

    def _given_up(self, running: RunningJob) -> Ending:
        """The transition of a job whose handler we stopped: released, unless the work may be done already (I11)."""
        if running.proceeded:
            return self._decider.interrupted(running, "The worker was stopped before the attempt had an outcome.")
        return self._decider.release(running)

    async def _all_settled(self) -> None:
        while self._running:
            self._slot_freed.clear()
            await self._slot_freed.wait()


async def _pause(stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BACK_OFF.total_seconds()):
            await stop.wait()
