"""Running handlers: every error of a handler becomes an outcome.

The point of no return is committed before a handler does something irreversible (I11). Handlers share commits: calls
that arrive during a commit go into the next commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.effects import Effect
from holdfast.contracts.errors import (
    BrokerUnavailable,
    DeadlinePassed,
    LeaseLost,
    PermanentError,
    StoreUnavailable,
    TransientError,
)
from holdfast.contracts.ledger import Claimed, Lease
from holdfast.contracts.outcomes import Expired, Outcome, Reject, Snooze
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queues import RateLimit
from holdfast.contracts.transitions import OVERDUE, Proceed, Settled, Settlement
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import Job, Workload
from holdfast.telemetry import emit

from .adoption import IDEMPOTENCY_CONFLICT
from .entries import REFUSED, REFUSED_BECAUSE
from .failures import BAD_OUTCOME, VALIDATION_FAILED, classify
from .group_commit import GroupCommit
from .hooks import Hooks, report_failure
from .limiter import Limiter
from .transitions import RunningJob

_MOST_IN_ONE_COMMIT: Final = 100


@dataclass(slots=True)
class _Request:
    settlement: Settlement
    answer: asyncio.Future[Settled]


class Proceeding:
    """Commits the points of no return of one workload, in one process."""

    def __init__(self, workload: str, store: Store) -> None:
        self._workload = workload
        self._store = store
        self._group_commit = GroupCommit(_MOST_IN_ONE_COMMIT, self._commit)

    async def proceed(self, lease: Lease, effects: Sequence[Effect], *, repeatable: bool) -> None:
        """Return once the mark is committed. Raises the errors of :meth:`Context.proceed` and those of the store."""
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        transition = Proceed(tuple(effects), repeatable)
        self._group_commit.add(_Request(Settlement(self._workload, lease, transition), answer))
        settled = await answer
        if settled.stale:
            raise LeaseLost
        if settled.note == OVERDUE:
            raise DeadlinePassed
        crash_point("worker.proceeded")

    async def _commit(self, batch: Sequence[_Request]) -> None:
        crash_point("worker.proceeding")
        try:
            settled = await self._store.settle([each.settlement for each in batch])
        except Exception as error:  # noqa: BLE001 - raised in the handlers that wait
            if len(batch) > 1 and not _away(error):  # one job may be at fault, or its records may be locked
                for each in batch:
                    await self._commit([each])
                return
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, answer in zip(batch, settled, strict=True):
            if not each.answer.done():  # its handler was cancelled: the mark stays, and nothing was done
                each.answer.set_result(answer)


def _away(error: Exception) -> bool:
    """Whether the store itself failed, for all jobs alike."""
    return type(error) is StoreUnavailable


_NOT_THE_HANDLERS: Final = (DeadlinePassed, LeaseLost, BrokerUnavailable, StoreUnavailable)
"""Errors that the context raises, and not the handler's own code."""
_WHEN_AWAY: Final = timedelta(seconds=1)


class HandlerContext:
    """What the engine offers to handlers; implements :class:`holdfast.contracts.workload.Context`.

    ``running`` are the jobs that this process has claimed and not yet settled, by their job ids.
    """

    def __init__(self, workload: str, store: Store, broker: Broker, worker: str, hold: timedelta) -> None:
        self._workload = workload
        self._store = store
        self._broker = broker
        self._worker = worker
        self._proceeding = Proceeding(workload, store)
        self._limiter = Limiter(broker, hold)
        self.running: dict[str, RunningJob] = {}

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        return self._worker

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """Read a record."""
        return await self._store.get(collection, key)

    async def proceed(self, job: Job[Any], effects: Sequence[Effect] = (), *, repeatable: bool = False) -> None:
        """Pass the point of no return."""
        running = self.running.get(job.job_id)
        if running is None or running.claim.attempt != job.attempt:
            raise LeaseLost
        try:
            await self._proceeding.proceed(running.lease, effects, repeatable=repeatable)
        except DeadlinePassed:
            await self.look_for_cancellations([running])  # a cancelled job is past its deadline, too
            raise
        running.proceeded = not repeatable

    def cancelled(self, job: Job[Any]) -> asyncio.Event:
        """Set when the job's sender cancels it."""
        running = self.running.get(job.job_id)
        return asyncio.Event() if running is None else running.cancelled

    async def look_for_cancellations(self, jobs: Sequence[RunningJob]) -> None:
        """Tell the handlers of these jobs which of them were cancelled."""
        asked = set(await self._store.asked_to_stop(self._workload, [each.lease for each in jobs]))
        for each in jobs:
            if each.lease in asked:
                each.cancelled.set()

    def has_proceeded(self, job: Job[Any]) -> bool:
        """Whether the job has passed its point of no return."""
        running = self.running.get(job.job_id)
        return running is not None and running.proceeded

    def log(self, message: str, **facts: Any) -> None:  # noqa: ANN401 - a log line has facts of any kind
        """Write one line."""
        emit(message, **{"workload": self._workload, **facts})

    def limit(self, name: str, rate: RateLimit) -> AbstractAsyncContextManager[None]:
        """Wait for a permit, and keep it in the body."""
        return self._limiter.limit(name, rate)

    async def reserve(self, job: Job[Any], name: str, rate: RateLimit) -> timedelta:
        """The wait until the job's place in an even flow."""
        (wait,) = await self._broker.reserve(name, rate, [job.job_id])
        return wait

    async def settle(self) -> None:
        """Return when every permit of the handlers is released."""
        await self._limiter.settle()


def job_of(workload: Workload[Any], claim: Claimed) -> Job[Any] | Outcome:
    """The job of a claim, validated by its contract. A body that breaks the contract is rejected."""
    if REFUSED in claim.labels:
        conflict = claim.labels[REFUSED] == IDEMPOTENCY_CONFLICT
        return Reject(IDEMPOTENCY_CONFLICT if conflict else VALIDATION_FAILED, claim.labels.get(REFUSED_BECAUSE, ""))
    try:
        data: BaseModel = workload.contract.model_validate_json(claim.body)
        data = workload.at_attempt(data, claim.attempt)
    except ValidationError as error:
        return Reject(VALIDATION_FAILED, describe_validation(error))
    except Exception as error:  # noqa: BLE001 - a workload's own code
        return classify(error, workload)
    return Job(
        key=claim.key,
        job_id=claim.job_id,
        data=data,
        attempt=claim.attempt,
        generation=claim.generation,
        received_at=claim.first_seen_at,
        deadline=claim.deadline,
        labels=claim.labels,
    )


async def handle(workload: Workload[Any], job: Job[Any], context: HandlerContext) -> Outcome:
    """Run one job. Cancellation from outside passes through; everything else becomes an outcome."""
    try:
        async with asyncio.timeout(workload.timeout.total_seconds()):
            outcome: Any = await workload.handle(job, context)  # other people's code: it may return anything
        return outcome if isinstance(outcome, Outcome) else _bad_outcome(workload, job, context, outcome)
    except asyncio.CancelledError as error:
        return _own_cancellation(workload, job, context, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error becomes an outcome here
        return _outcome_of_error(workload, job, context, error)


async def handle_batch(workload: Workload[Any], jobs: Sequence[Job[Any]], context: HandlerContext) -> Sequence[Outcome]:
    """Run many jobs in one call. If the call as a whole fails, each job runs alone: a job must not fail the others."""
    try:
        async with asyncio.timeout(workload.timeout.total_seconds()):
            outcomes: list[Any] = list(await workload.handle_batch(jobs, context))
        if len(outcomes) != len(jobs):
            message = f"The batch handler returned {len(outcomes)} outcomes for {len(jobs)} jobs."
            raise PermanentError(BAD_OUTCOME, message)  # noqa: TRY301 - handled below like any other error
        return [
            each if isinstance(each, Outcome) else _bad_outcome(workload, job, context, each)
            for job, each in zip(jobs, outcomes, strict=True)
        ]
    except asyncio.CancelledError as error:
        outcomes = [_own_cancellation(workload, job, context, error) for job in jobs]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        if len(jobs) > 1 and not isinstance(error, _NOT_THE_HANDLERS):  # a single job has the failure in its outcome
            report_failure(workload, "handle_batch", error)
        outcomes = [_outcome_of_error(workload, job, context, error) for job in jobs]
    if len(jobs) == 1:
        return outcomes
    return [
        outcome if context.has_proceeded(job) else (await handle_batch(workload, [job], context))[0]
        for job, outcome in zip(jobs, outcomes, strict=True)
    ]


def _outcome_of_error(workload: Workload[Any], job: Job[Any], context: HandlerContext, error: BaseException) -> Outcome:
    """The outcome for an error. Beyond the point of no return, the error does not show what was done (I11)."""
    if context.has_proceeded(job):
        return _unknown(workload, job, error)
    match error:
        case DeadlinePassed():
            return Expired()
        case LeaseLost():
            return Snooze(timedelta(0))  # the job is not ours: any outcome is stale
        case BrokerUnavailable() | StoreUnavailable():
            return Snooze(_WHEN_AWAY)  # our own store or queue is away, and the job is not at fault
        case _:
            return classify(error, workload)


def _unknown(workload: Workload[Any], job: Job[Any], error: BaseException) -> Outcome:
    reason = Hooks(workload).interrupted(job.attempt)
    return Reject(reason.code, f"{reason.message} ({classify(error, workload).message})")


def _own_cancellation(
    workload: Workload[Any],
    job: Job[Any],
    context: HandlerContext,
    error: asyncio.CancelledError,
) -> Outcome:
    """A cancellation from inside the handler is a failure. A cancellation by the worker is raised again."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return _outcome_of_error(workload, job, context, error)


def _bad_outcome(workload: Workload[Any], job: Job[Any], context: HandlerContext, returned: object) -> Outcome:
    """The outcome of a handler that returned something else: an error like others."""
    message = f"The handler returned {type(returned).__name__} instead of an Outcome."
    return _outcome_of_error(workload, job, context, TransientError(BAD_OUTCOME, message))
