"""Running handlers: data in, outcome out, and no surprise gets past."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from holdfast.contracts.errors import PermanentError
from holdfast.contracts.ledger import Claimed
from holdfast.contracts.outcomes import Done, Expired, Outcome, Reject, Retry, Snooze
from holdfast.contracts.ports import Store
from holdfast.contracts.workload import Job, Workload

from .adoption import IDEMPOTENCY_CONFLICT
from .entries import REFUSED
from .failures import BAD_OUTCOME, VALIDATION_FAILED, classify, describe_validation
from .verdicts import outcome_of

_OUTCOMES = Done | Retry | Snooze | Reject | Expired


class HandlerContext:
    """What handlers may ask for while they work; implements :class:`holdfast.contracts.workload.Context`."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        return self._worker

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """Read a document."""
        return await self._store.get(collection, key)


def job_of(workload: Workload[Any], claim: Claimed) -> Job[Any] | Outcome:
    """The job that the ledger holds, in its contract; a body that breaks the contract is rejected for good."""
    try:
        data: BaseModel = workload.contract.model_validate_json(claim.body)
        data = workload.at_attempt(data, claim.attempt)
    except ValidationError as error:
        return Reject(VALIDATION_FAILED, describe_validation(error))
    except Exception as error:  # noqa: BLE001 - a workload's own code
        return outcome_of(classify(error, workload))
    if claim.labels.get(REFUSED) == IDEMPOTENCY_CONFLICT:
        return Reject(IDEMPOTENCY_CONFLICT, "Another job with the same key and other content was accepted before.")
    if REFUSED in claim.labels:
        return Reject(VALIDATION_FAILED, "The job's identity cannot be used.")
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
            return _checked(await workload.handle(job, context))
    except asyncio.CancelledError as error:
        return _own_cancellation(workload, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - this is the place that turns surprises into outcomes
        return outcome_of(classify(error, workload))


async def handle_batch(workload: Workload[Any], jobs: Sequence[Job[Any]], context: HandlerContext) -> Sequence[Outcome]:
    """Run many jobs in one call. If the call as a whole fails, each runs alone: a batch is never a shared fate."""
    try:
        async with asyncio.timeout(workload.timeout.total_seconds()):
            outcomes = list(await workload.handle_batch(jobs, context))
        if len(outcomes) != len(jobs):
            message = f"The batch handler returned {len(outcomes)} outcomes for {len(jobs)} jobs."
            raise PermanentError(BAD_OUTCOME, message)  # noqa: TRY301 - judged below like any other surprise
        return [_checked(outcome) for outcome in outcomes]
    except asyncio.CancelledError as error:
        outcome = _own_cancellation(workload, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        outcome = outcome_of(classify(error, workload))
    if len(jobs) == 1:
        return [outcome]
    return [(await handle_batch(workload, [job], context))[0] for job in jobs]


def _own_cancellation(workload: Workload[Any], error: asyncio.CancelledError) -> Outcome:
    """A handler whose own work was cancelled has failed; a worker that cancels its handler means it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return outcome_of(classify(error, workload))


def _checked(outcome: Any) -> Outcome:  # noqa: ANN401 - handlers are other people's code
    if isinstance(outcome, _OUTCOMES):
        return outcome
    return Retry(BAD_OUTCOME, f"The handler returned {type(outcome).__name__} instead of an Outcome.")
