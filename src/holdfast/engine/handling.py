"""Running handlers: every error of a handler becomes an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from holdfast.contracts.errors import (
    BrokerUnavailable,
    DeadlinePassed,
    LeaseLost,
    NewerVersion,
    PermanentError,
    StoreUnavailable,
    TransientError,
)
from holdfast.contracts.jobs import Job
from holdfast.contracts.ledger import Claimed
from holdfast.contracts.outcomes import Expired, Failure, Outcome, Reject, Snooze
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import Workload

from .adoption import IDEMPOTENCY_CONFLICT
from .context import JobContext
from .entries import REFUSED, REFUSED_BECAUSE
from .failures import BAD_OUTCOME, VALIDATION_FAILED, classify
from .hooks import Hooks, report_failure
from .tracebacks import traceback_text

_NOT_THE_HANDLERS: Final = (DeadlinePassed, LeaseLost, BrokerUnavailable, StoreUnavailable)
"""Errors that the context raises, and not the handler's own code."""
_WHEN_AWAY: Final = timedelta(seconds=1)
WHEN_NEWER: Final = timedelta(minutes=1)
"""How long a job of a newer version waits before it is tried again."""


def job_of(workload: Workload[Any], claim: Claimed) -> Job[Any] | Outcome:
    """The job of a claim, validated by its contract. A body that breaks the contract is rejected."""
    if REFUSED in claim.labels:
        conflict = claim.labels[REFUSED] == IDEMPOTENCY_CONFLICT
        return Reject(IDEMPOTENCY_CONFLICT if conflict else VALIDATION_FAILED, claim.labels.get(REFUSED_BECAUSE, ""))
    try:
        data: BaseModel = workload.read(claim.body)
        data = workload.at_attempt(data, claim.attempt)
    except NewerVersion as error:  # a worker of the newer version will do it
        return Snooze(WHEN_NEWER, f"newer_version: {error.message}")
    except ValidationError as error:
        return Reject(VALIDATION_FAILED, describe_validation(error))
    except Exception as error:  # noqa: BLE001 - a workload's own code
        return _with_traceback(classify(error, workload), error)
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


async def handle(workload: Workload[Any], context: JobContext) -> Outcome:
    """Run one job. Cancellation from outside passes through; everything else becomes an outcome."""
    try:
        async with asyncio.timeout(workload.timeout.total_seconds()):
            outcome: Any = await workload.handle(context.job, context)  # other people's code: it may return anything
        return outcome if isinstance(outcome, Outcome) else _bad_outcome(workload, context, outcome)
    except asyncio.CancelledError as error:
        return _own_cancellation(workload, context, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every error becomes an outcome here
        return _outcome_of_error(workload, context, error)


async def handle_batch(workload: Workload[Any], contexts: Sequence[JobContext]) -> Sequence[Outcome]:
    """Run many jobs in one call. If the call as a whole fails, each job runs alone: a job must not fail the others."""
    jobs = [each.job for each in contexts]
    try:
        async with asyncio.timeout(workload.timeout.total_seconds()):
            outcomes: list[Any] = list(await workload.handle_batch(jobs, contexts))
        if len(outcomes) != len(jobs):
            message = f"The batch handler returned {len(outcomes)} outcomes for {len(jobs)} jobs."
            raise PermanentError(BAD_OUTCOME, message)  # noqa: TRY301 - handled below like any other error
        return [
            each if isinstance(each, Outcome) else _bad_outcome(workload, context, each)
            for context, each in zip(contexts, outcomes, strict=True)
        ]
    except asyncio.CancelledError as error:
        outcomes = [_own_cancellation(workload, context, error) for context in contexts]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        if len(jobs) > 1 and not isinstance(error, _NOT_THE_HANDLERS):  # a single job has the failure in its outcome
            report_failure(workload, "handle_batch", error)
        outcomes = [_outcome_of_error(workload, context, error) for context in contexts]
    if len(jobs) == 1:
        return outcomes
    return [
        outcome if context.running.proceeded else (await handle_batch(workload, [context]))[0]
        for context, outcome in zip(contexts, outcomes, strict=True)
    ]


def _outcome_of_error(workload: Workload[Any], context: JobContext, error: BaseException) -> Outcome:
    """The outcome for an error. Beyond the point of no return, the error does not show what was done (I11)."""
    if context.running.proceeded:
        return _unknown(workload, context.job, error)
    match error:
        case DeadlinePassed():
            return Expired()
        case LeaseLost():
            return Snooze(timedelta(0))  # the job is not ours: any outcome is stale
        case BrokerUnavailable() | StoreUnavailable():
            return Snooze(_WHEN_AWAY)  # our own store or queue is away, and the job is not at fault
        case _:
            return _with_traceback(classify(error, workload), error)


def _unknown(workload: Workload[Any], job: Job[Any], error: BaseException) -> Outcome:
    reason = Hooks(workload).interrupted(job.attempt)
    failure = classify(error, workload)
    return _with_traceback(Reject(reason.code, f"{reason.message} ({failure.message})"), error)


def _with_traceback(failure: Failure, error: BaseException) -> Failure:
    """The failure, and where the error was raised."""
    where = traceback_text(error)
    return Failure(failure.code, failure.message, retry=failure.retry, after=failure.after, traceback=where)


def _own_cancellation(workload: Workload[Any], context: JobContext, error: asyncio.CancelledError) -> Outcome:
    """A cancellation from inside the handler is a failure. A cancellation by the worker is raised again."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return _outcome_of_error(workload, context, error)


def _bad_outcome(workload: Workload[Any], context: JobContext, returned: object) -> Outcome:
    """The outcome of a handler that returned something else: an error like others."""
    message = f"The handler returned {type(returned).__name__} instead of an Outcome."
    return _outcome_of_error(workload, context, TransientError(BAD_OUTCOME, message))
