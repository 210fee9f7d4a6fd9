"""Settling: finished jobs of one workload are committed together, then acknowledged in the queue.

The ledger always comes first. A crash between the two does no harm: the queue delivers the job again, and the claim
answers that the job is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.errors import BrokerUnavailable, EffectRefused, HoldfastError, StoreContended, StoreUnavailable
from holdfast.contracts.ledger import Claimed, ClaimResult, Held, Status
from holdfast.contracts.outcomes import Reason
from holdfast.contracts.ports import Broker, Clock, Store
from holdfast.contracts.queues import Acknowledgement, Again, Failed, Finished, Handling
from holdfast.contracts.redaction import scrub
from holdfast.contracts.transitions import (
    Complete,
    Ending,
    Expire,
    MoveToDeadLetters,
    Release,
    RetryLater,
    Settled,
    Settlement,
    noted_result,
)
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events

from .entries import body_at_attempt
from .failures import EFFECT_REFUSED
from .group_commit import GroupCommit
from .hooks import Hooks, result_text
from .projection import Projection
from .transitions import Decider, RunningJob

_MOST_IN_ONE_COMMIT: Final = 100
_SHORT_LEASE: Final = timedelta(seconds=30)
_FIRST_WAIT: Final = timedelta(milliseconds=50)
_LONGEST_WAIT: Final = timedelta(seconds=2)
_POSTPONEMENT: Final = timedelta(milliseconds=500)


Ended = Callable[[str, Sequence[str]], None]


class Settler(GroupCommit[RunningJob]):
    """The group commit of jobs that have their transition.

    ``left`` is called when a job no longer occupies a slot, and ``ended`` with the workload and the keys of jobs that
    have reached their last state. ``parallel`` flushes run at a time.
    """

    def __init__(  # noqa: PLR0913 - what it writes to, and what it calls
        self,
        workload: Workload[Any],
        store: Store,
        broker: Broker,
        clock: Clock,
        decider: Decider,
        *,
        left: Callable[[RunningJob], None],
        ended: Ended | None = None,
        parallel: int = 1,
    ) -> None:
        super().__init__(_MOST_IN_ONE_COMMIT, self._flush, parallel)
        self._workload = workload
        self._store = store
        self._broker = broker
        self._clock = clock
        self._decider = decider
        self._projection = Projection(store, broker)
        self._left = left
        self._ended = ended
        self._postponed: set[RunningJob] = set()

    async def stop(self) -> None:
        """Give up what is not settled: the leases will run out."""
        self._postponed.clear()
        await super().stop()

    def _postpone(self, job: RunningJob) -> None:
        """Try this job again later. It keeps its slot and its lease, and does not delay the others."""
        self._postponed.add(job)
        asyncio.get_running_loop().call_later(_POSTPONEMENT.total_seconds(), self._resume, job)

    def _resume(self, job: RunningJob) -> None:
        if job in self._postponed:
            self._postponed.discard(job)
            self.add(job)

    # --- one flush ----------------------------------------------------------------------------------------

    async def _flush(self, batch: Sequence[RunningJob]) -> None:
        try:
            settled = await self._settle_each(batch)
            crash_point("worker.settled")
            self._report(settled)
            if self._ended is not None:
                last = [
                    job.claim.key for job, answer in settled if answer.status is not None and answer.status.terminal
                ]
                self._ended(self._workload.name, last)
            await self._acknowledge(settled)
            crash_point("worker.acknowledged")
            if any(answer.status is Status.DEAD_LETTERED for _, answer in settled):
                await self._publish_letters()
        except Exception as error:  # noqa: BLE001 - an unexpected error of one flush must not end all settling
            # These leases are not renewed any more: after they have run out, the jobs are claimed again.
            emit_failure(events.WORKER_FAULT, error, workload=self._workload.name)
        finally:
            for job in batch:
                if job not in self._postponed:
                    self._left(job)

    async def _settle_each(self, batch: Sequence[RunningJob]) -> list[tuple[RunningJob, Settled]]:
        """Settle the batch. If the whole batch cannot be settled, settle job by job: a bad job stops no other."""
        try:
            return await self._settle(batch)
        except HoldfastError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - one job's data must not stop the others
            reason = f"{type(error).__name__}: {error}"
        if len(batch) > 1:
            emit(events.BATCH_SPLIT, workload=self._workload.name, jobs=len(batch), reason=reason)
        return [pair for job in batch for pair in await self._settle_alone(job)]

    async def _settle_alone(self, job: RunningJob) -> list[tuple[RunningJob, Settled]]:
        try:
            return await self._settle([job])
        except StoreContended:
            self._postpone(job)
            return []
        except EffectRefused as error:
            failure = Reason(error.code or EFFECT_REFUSED, scrub(error.message))
        except Exception as error:  # noqa: BLE001 - the job is at fault, not the worker
            failure = Reason(EFFECT_REFUSED, scrub(f"{type(error).__name__}: {error}"))
        job.transition = self._decider.bare_dead_letter(job, failure)
        try:
            return await self._settle([job])
        except StoreContended:
            self._postpone(job)
            return []
        except Exception as error:  # noqa: BLE001 - the others are settled; this job is claimed again after its lease
            emit_failure(events.WORKER_FAULT, error, workload=self._workload.name)
            return [(job, Settled(job.claim.job_id, None))]

    async def _settle(self, batch: Sequence[RunningJob]) -> list[tuple[RunningJob, Settled]]:
        """Settle; repeat while the store is away. Settling twice is safe: the fence lets only one write (I4)."""
        settlements = [
            Settlement(self._workload.name, job.lease, job.transition, self._with_the_ledger(job))
            for job in batch
            if job.transition
        ]
        wait = _FIRST_WAIT
        while True:
            try:
                return list(zip(batch, await self._store.settle(settlements), strict=True))
            except StoreContended:
                raise  # the other transaction may be that of a crashed process: the other jobs should not wait for it
            except StoreUnavailable as error:
                emit(events.STORE_UNAVAILABLE, where="settle", reason=error.message)
                await asyncio.sleep(wait.total_seconds())
                wait = min(wait * 2, _LONGEST_WAIT)

    # --- the queue ----------------------------------------------------------------------------------------

    def _with_the_ledger(self, job: RunningJob) -> Acknowledgement | None:
        """What the ledger's own commit does with the delivery, if the queue is in the same file."""
        if job.delivery is None or not self._store.publishes:
            return None
        # Such a queue keeps no finished jobs, so it needs no result.
        done = isinstance(job.transition, Complete)
        return Acknowledgement(job.delivery, Finished() if done else self._handling(job))

    async def _acknowledge(self, settled: Sequence[tuple[RunningJob, Settled]]) -> None:
        """Acknowledge in the queue. A queue that is away delivers again, and the claim finds the job settled."""
        acknowledgements = [
            Acknowledgement(job.delivery, self._handling(job, answer.note))
            for job, answer in settled
            if job.delivery is not None and answer.status is not None and not self._store.publishes
        ]
        if not acknowledgements:
            return
        try:
            await self._broker.settle(acknowledgements)
        except BrokerUnavailable as error:
            emit(events.QUEUE_UNAVAILABLE, where="settle", queue=self._workload.queue, reason=error.message)

    def _handling(self, job: RunningJob, note: str | None = None) -> Handling:
        match job.transition:
            case Complete(result=result):
                return Finished(result_text(noted_result(result, note)))
            case RetryLater(after=after, code=code, message=message, traceback=traceback):
                data = body_at_attempt(self._workload, job.claim.body, job.claim.attempt + 1)
                return Again(after, data, f"{code}: {message}", traceback)
            case Release(after=after):
                return Again(after)
            case MoveToDeadLetters(reason_code=code, reason_message=message, body=body, traceback=traceback):
                return Failed(f"{code}: {message}", body, traceback)  # no more than the dead letter keeps
            case _:
                return Finished()

    async def _publish_letters(self) -> None:
        try:
            await self._projection.publish(self._workload)
        except (BrokerUnavailable, StoreUnavailable) as error:  # maintenance publishes them later
            emit(events.QUEUE_UNAVAILABLE, where="dead letters", reason=error.message)

    # --- the log ------------------------------------------------------------------------------------------

    def _report(self, settled: Sequence[tuple[RunningJob, Settled]]) -> None:
        now = self._clock.monotonic()
        for job, answer in settled:
            emit(
                events.ATTEMPT_SETTLED if answer.status else events.ATTEMPT_STALE,
                workload=self._workload.name,
                key=job.claim.key,
                attempt=job.claim.attempt,
                outcome=_outcome_of(job, answer),
                note=answer.note,
                error_code=getattr(job.transition, "code", None),
                error_message=getattr(job.transition, "message", None),
                duration_ms=round((now - job.started) * 1000, 1),
                trace_id=job.claim.labels.get("traceId") if isinstance(job.claim, Claimed) else None,
            )
            if isinstance(job.transition, MoveToDeadLetters) and answer.status is not None:
                emit(
                    events.JOB_DEAD_LETTERED,
                    workload=self._workload.name,
                    key=job.claim.key,
                    letter=job.transition.letter_id,
                    reason_code=job.transition.reason_code,
                )


def _outcome_of(job: RunningJob, answer: Settled) -> str:
    """What happened, in one word for the log. A job that waits is not a job that failed."""
    match job.transition:
        case _ if answer.status is None:
            return "stale"
        case Release(snoozed=snoozed):
            return "snoozed" if snoozed else "released"
        case Expire(cancelled=True):
            return "cancelled"
        case _:
            return answer.status.value


async def end(  # noqa: PLR0913 - jobs, and how they are claimed
    store: Store,
    workload: Workload[Any],
    job_ids: Sequence[str],
    decide: Callable[[RunningJob], Ending],
    *,
    worker: str,
    max_attempts: int = 0,
) -> tuple[list[Settled], list[ClaimResult]]:
    """End jobs that no handler of ours works: claim them, and settle those that are ours now.

    With ``max_attempts=0`` no attempt is opened. Returns the answers to the settlements and to the claims.
    """
    claims = await store.claim(workload.name, job_ids, worker=worker, lease=_SHORT_LEASE, max_attempts=max_attempts)
    hooks = Hooks(workload)
    jobs = [RunningJob(claim, hooks.job_of(claim)) for claim in claims if isinstance(claim, Held)]
    return await _settle_bare(store, [Settlement(workload.name, job.lease, decide(job)) for job in jobs]), claims


async def _settle_bare(store: Store, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle. Effects that cannot be applied are left out, so that they do not keep a job open."""
    if not settlements:
        return []
    try:
        return await store.settle(settlements)
    except EffectRefused as error:
        bare = [
            replace(each, transition=replace(each.transition, effects=()))
            if each.lease.job_id == error.job_id
            else each
            for each in settlements
        ]
        if bare == list(settlements):
            raise
        return await _settle_bare(store, bare)
