"""One job on its way through this process, and from its outcome to its transition: what the ledger commits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, assert_never

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.jobs import JobState
from holdfast.contracts.ledger import Held, Interrupted, Lease, Overdue
from holdfast.contracts.outcomes import Done, Expired, Failure, Halt, Outcome, Reason, Snooze
from holdfast.contracts.ports import Random
from holdfast.contracts.queues import Delivery
from holdfast.contracts.redaction import scrub
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.transitions import (
    CANCELLED,
    WORKED_ELSEWHERE,
    Complete,
    Ending,
    Expire,
    MoveToDeadLetters,
    Release,
    RetryLater,
)
from holdfast.contracts.workload import Workload

from .entries import body_at_attempt
from .failures import BAD_OUTCOME, WORKER_LOST
from .hooks import Hooks, call_hook, policy_limit


@dataclass(slots=True, eq=False)
class RunningJob:
    """A claim, what the workload sees of its job, and the state of the work on it, from the claim to the settlement.

    ``job`` is None for a body that breaks its contract. ``delivery`` is None for a job that maintenance ends, or that
    its sender cancels: the queue did not deliver it. ``started`` is on the monotonic clock.
    """

    claim: Held
    job: JobState[Any] | None
    delivery: Delivery | None = None
    started: float = 0.0
    task: asyncio.Task[None] | None = None
    proceeded: bool = False
    """Whether the job has passed its point of no return (I11)."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker has learned that the job's sender cancelled it."""
    transition: Ending | None = None
    """How the job ends; set when it is given to the settler, which may still change it."""

    @property
    def lease(self) -> Lease:
        """The proof that the job is ours."""
        return Lease(self.claim.job_id, self.claim.fence)


def attempt_limit(workload: Workload[Any], job: JobState[Any] | None) -> int:
    """The attempt after which the job becomes a dead letter. The retry policy's limit is the highest possible."""
    most = policy_limit(workload)
    if job is None:
        return most
    return call_hook(workload, "max_attempts", lambda: min(max(workload.max_attempts(job.data), 1), most), lambda: most)


class Decider:
    """Decides transitions for one workload. It never waits and never writes."""

    def __init__(self, workload: Workload[Any], random: Random) -> None:
        self._workload = workload
        self._random = random
        self._hooks = Hooks(workload)

    def decide(self, outcome: Outcome, job: RunningJob) -> Ending:
        """The transition for an outcome. There is always one, whatever the outcome holds."""
        try:
            match outcome:
                case Done():
                    transition: Ending = Complete(self._workload.retention, outcome.effects, outcome.result)
                case Failure():
                    return self._failed(_scrubbed(outcome), job)
                case Snooze():
                    transition = Release(outcome.after, note=outcome.note, snoozed=True)
                case Halt():
                    transition = Release()
                case Expired():
                    note = CANCELLED if job.cancelled.is_set() else None
                    transition = Expire(self._workload.retention, outcome.effects, note)
                case _ as never:
                    assert_never(never)
            return self._hooks.with_effects(transition, job.job)
        except Exception as error:  # noqa: BLE001 - other people filled it in: a message of None, a wait in seconds
            message = scrub(f"The handler's {type(outcome).__name__} cannot be used: {type(error).__name__}: {error}")
            return self.dead_letter(job, Reason(BAD_OUTCOME, message))

    def _failed(self, failure: Failure, job: RunningJob) -> Ending:
        if not failure.retry:
            return self.dead_letter(job, failure)
        if job.claim.attempt >= attempt_limit(self._workload, job.job):
            return self.dead_letter(job, failure, self._hooks.exhausted(failure, job.claim.attempt))
        wait = self._wait(job.claim.attempt, failure.after)
        return self._hooks.with_effects(
            RetryLater(wait, failure.code, failure.message, traceback=failure.traceback), job.job
        )

    def without_attempt(self, job: RunningJob) -> Ending:
        """The transition of a job that was claimed without an attempt."""
        match job.claim:
            case Overdue(cancelled=cancelled):
                note = CANCELLED if cancelled else None
                return self._hooks.with_effects(Expire(self._workload.retention, note=note), job.job)
            case Interrupted():
                return self.interrupted(job, "The worker vanished.")
            case _:
                failure = Reason(WORKER_LOST, "The worker vanished during the last attempt.")
                reason = Reason(WORKER_LOST, f"{job.claim.attempt} attempts ended with a lost worker or a failure.")
                return self.dead_letter(job, failure, reason)

    def elsewhere(self, job: RunningJob, result: Mapping[str, Any] | None) -> Ending:
        """The transition of a job that another system's worker has done."""
        complete = Complete(self._workload.retention, result=result, note=WORKED_ELSEWHERE)
        return self._hooks.with_effects(complete, job.job)

    def interrupted(self, job: RunningJob, what: str) -> Ending:
        """The transition of a job that has passed its point of no return and has no outcome (I11)."""
        reason = self._hooks.interrupted(job.claim.attempt)
        return self.dead_letter(job, Reason(reason.code, what), reason)

    def release(self, job: RunningJob) -> Ending:
        """The transition of a job that another worker should do, at once."""
        return self._hooks.with_effects(Release(), job.job)

    def dead_letter(self, job: RunningJob, failure: Reason, reason: Reason | None = None) -> Ending:
        """The transition to the dead letters. The failure is the reason, unless another reason is given."""
        return self._hooks.with_effects(self.bare_dead_letter(job, failure, reason), job.job)

    def bare_dead_letter(self, job: RunningJob, failure: Reason, reason: Reason | None = None) -> MoveToDeadLetters:
        """The same without the workload's effects, for a job whose effects cannot be committed."""
        reason = reason or failure
        return MoveToDeadLetters(
            letter_id=letter_id(self._workload.name, job.claim.key, job.claim.generation),
            code=failure.code,
            message=failure.message,
            reason_code=reason.code,
            reason_message=scrub(reason.message),
            retention=self._workload.retention,
            letter_retention=self._workload.letter_retention,
            body=self._letter_body(job),
            traceback=failure.traceback if isinstance(failure, Failure) else None,
        )

    def _letter_body(self, job: RunningJob) -> str | None:
        """The body in the letter and in the queue's failed job, with the number of the last attempt."""
        body = job.claim.body
        if job.claim.attempt > 1:
            body = body_at_attempt(self._workload, body, job.claim.attempt)
        return self._hooks.letter_body(body) or (body if body != job.claim.body else None)

    def _wait(self, attempt: int, shortest: timedelta | None) -> timedelta:
        """The wait of the policy, or the wait that the other side named, if that is longer."""
        delay = call_hook(
            self._workload,
            "retry.delay",
            lambda: self._workload.retry.delay(attempt, self._random),
            lambda: ExponentialBackoff().delay(attempt, self._random),
        )
        return delay if shortest is None else max(delay, shortest)


def _scrubbed(failure: Failure) -> Failure:
    message = scrub(failure.message)
    return Failure(failure.code, message, retry=failure.retry, after=failure.after, traceback=failure.traceback)
