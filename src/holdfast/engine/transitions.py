"""From outcomes to transitions: what the ledger commits for the outcome of a handler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_never

from pydantic import BaseModel

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.ledger import Exhausted, Interrupted, Overdue
from holdfast.contracts.outcomes import Done, Expired, Halt, Outcome, Reject, Retry, Snooze
from holdfast.contracts.ports import Random
from holdfast.contracts.redaction import scrub
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.transitions import (
    CANCELLED,
    Complete,
    Expire,
    MoveToDeadLetters,
    Release,
    RetryLater,
    Transition,
)
from holdfast.contracts.workload import Failure, Reason, Standing, Workload

from .entries import body_at_attempt
from .failures import BAD_OUTCOME, WORKER_LOST
from .hooks import Hooks, call_hook, policy_limit


def outcome_of(failure: Failure) -> Outcome:
    """A classified error as the outcome that the handler could have returned."""
    if failure.retry:
        return Retry(failure.code, failure.message, failure.after)
    return Reject(failure.code, failure.message)


def attempt_limit(workload: Workload[Any], data: BaseModel | None) -> int:
    """The attempt after which the job becomes a dead letter. The retry policy's limit is the highest possible."""
    most = policy_limit(workload)
    if data is None:
        return most
    return call_hook(workload, "max_attempts", lambda: min(max(workload.max_attempts(data), 1), most), lambda: most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The job of a transition. ``data`` is None if the body breaks the contract."""

    key: str
    generation: int
    attempt: int
    body: str = ""
    data: BaseModel | None = None

    @property
    def standing(self) -> Standing[Any] | None:
        """The job as the hooks of its workload get it; None without data."""
        return None if self.data is None else Standing(self.data, self.generation, self.attempt)


class Decider:
    """Decides transitions for one workload. It never waits and never writes."""

    def __init__(self, workload: Workload[Any], random: Random) -> None:
        self._workload = workload
        self._random = random
        self._hooks = Hooks(workload)

    def decide(self, outcome: Outcome, subject: Subject) -> Transition:
        """The transition for an outcome. There is always one, whatever the outcome holds."""
        try:
            return self._decide(outcome, subject)
        except Exception as error:  # noqa: BLE001 - other people filled it in: a message of None, a wait in seconds
            message = scrub(f"The handler's {type(outcome).__name__} cannot be used: {type(error).__name__}: {error}")
            failure = Failure(BAD_OUTCOME, message, retry=False)
            return self.dead_letter(subject, failure)

    def _decide(self, outcome: Outcome, subject: Subject) -> Transition:  # noqa: PLR0911 - a table
        workload, hooks = self._workload, self._hooks
        match outcome:
            case Done():
                return Complete(workload.retention, outcome.effects, outcome.result)
            case Retry():
                failure = Failure(outcome.code, scrub(outcome.message), retry=True, after=outcome.after)
                if subject.attempt >= attempt_limit(workload, subject.data):
                    return self.dead_letter(subject, failure, hooks.exhausted(failure, subject.attempt))
                wait = self._wait(subject.attempt, outcome.after)
                effects = hooks.retrying(subject.standing, failure, wait)
                return RetryLater(wait, failure.code, failure.message, effects)
            case Snooze():
                return Release(outcome.after, hooks.released(subject.standing))
            case Halt():
                return self.release(subject)
            case Reject():
                return self.dead_letter(subject, Failure(outcome.code, scrub(outcome.message), retry=False))
            case Expired():
                return Expire(workload.retention, outcome.effects)
            case _ as never:
                assert_never(never)

    def without_attempt(self, claim: Exhausted | Interrupted | Overdue) -> Transition:
        """The transition of a job that was claimed without an attempt."""
        data = self._hooks.data_of(claim.body)
        if isinstance(claim, Overdue):
            effects = self._hooks.expired(data, cancelled=claim.cancelled)
            return Expire(self._workload.retention, effects, CANCELLED if claim.cancelled else None)
        subject = Subject(
            key=claim.key, generation=claim.generation, attempt=claim.attempts, body=claim.body, data=data
        )
        if isinstance(claim, Interrupted):
            return self.interrupted(subject, "The worker vanished.")
        failure = Failure(WORKER_LOST, "The worker vanished during the last attempt.", retry=False)
        reason = Reason(WORKER_LOST, f"{claim.attempts} attempts ended with a lost worker or a failure.")
        return self.dead_letter(subject, failure, reason)

    def interrupted(self, subject: Subject, what: str) -> MoveToDeadLetters:
        """The transition of a job that has passed its point of no return and has no outcome (I11)."""
        reason = self._hooks.interrupted(subject.attempt)
        return self.dead_letter(subject, Failure(reason.code, what, retry=False), reason)

    def release(self, subject: Subject) -> Release:
        """The transition of a job that another worker should do, at once."""
        return Release(effects=self._hooks.released(subject.standing))

    def dead_letter(self, subject: Subject, failure: Failure, reason: Reason | None = None) -> MoveToDeadLetters:
        """The transition to the dead letters. The failure is the reason, unless another reason is given."""
        reason = reason or Reason(failure.code, failure.message)
        reason = Reason(reason.code, scrub(reason.message))
        return MoveToDeadLetters(
            letter_id=letter_id(self._workload.name, subject.key, subject.generation),
            code=failure.code,
            message=failure.message,
            reason_code=reason.code,
            reason_message=reason.message,
            retention=self._workload.retention,
            letter_retention=self._workload.letter_retention,
            effects=self._hooks.dead_lettered(subject.standing, reason),
            body=self._letter_body(subject),
        )

    def _letter_body(self, subject: Subject) -> str | None:
        """The body in the letter and in the queue's failed job, with the number of the last attempt."""
        body = subject.body
        if subject.attempt > 1:
            body = body_at_attempt(self._workload, body, subject.attempt)
        return self._hooks.letter_body(body) or (body if body != subject.body else None)

    def _wait(self, attempt: int, shortest: timedelta | None) -> timedelta:
        """The wait of the policy, or the wait that the other side named, if that is longer."""
        delay = call_hook(
            self._workload,
            "retry.delay",
            lambda: self._workload.retry.delay(attempt, self._random),
            lambda: ExponentialBackoff().delay(attempt, self._random),
        )
        return delay if shortest is None else max(delay, shortest)
