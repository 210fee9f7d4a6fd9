"""From outcomes to verdicts: what a handler said, and what the ledger is asked to commit for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_never

from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.outcomes import Done, Expired, Outcome, Reject, Retry, Snooze
from holdfast.contracts.ports import Random
from holdfast.contracts.redaction import scrub
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.settlement import Bury, Complete, Expire, HandBack, RetryLater, Verdict
from holdfast.contracts.workload import Failure, Reason, Workload

from .failures import BAD_OUTCOME


def outcome_of(failure: Failure) -> Outcome:
    """A classified surprise as the outcome that the handler would have returned."""
    if failure.retry:
        return Retry(failure.code, failure.message, failure.after)
    return Reject(failure.code, failure.message)


class Judge:
    """Decides verdicts for one workload. It never waits and never writes."""

    def __init__(self, workload: Workload[Any], random: Random) -> None:
        self._workload = workload
        self._random = random

    def verdict(self, outcome: Outcome, *, key: str, generation: int, attempt: int) -> Verdict:
        """What to commit for an outcome of the given attempt. There is always a verdict, whatever the outcome holds."""
        try:
            return self._verdict(outcome, key, generation, attempt)
        except Exception as error:  # noqa: BLE001 - other people filled it in: a message of None, a wait in seconds
            message = scrub(f"The handler's {type(outcome).__name__} cannot be used: {type(error).__name__}: {error}")
            failure = Failure(BAD_OUTCOME, message, retry=False)
            return self.bury(key, generation, failure, Reason(failure.code, failure.message))

    def _verdict(self, outcome: Outcome, key: str, generation: int, attempt: int) -> Verdict:
        workload = self._workload
        match outcome:
            case Done():
                return Complete(workload.retention, outcome.effects, outcome.result)
            case Retry():
                failure = Failure(outcome.code, scrub(outcome.message), retry=True, after=outcome.after)
                if attempt >= workload.retry.max_attempts:
                    return self.bury(key, generation, failure, self._exhausted(failure, attempt))
                return RetryLater(self._wait(attempt, outcome.after), failure.code, failure.message)
            case Snooze():
                return HandBack(outcome.after)
            case Reject():
                failure = Failure(outcome.code, scrub(outcome.message), retry=False)
                return self.bury(key, generation, failure, Reason(failure.code, failure.message))
            case Expired():
                return Expire(workload.retention, outcome.effects)
            case _ as never:
                assert_never(never)

    def bury(self, key: str, generation: int, failure: Failure, reason: Reason) -> Bury:
        """The verdict that ends in the dead letters."""
        return Bury(
            letter_id=letter_id(self._workload.name, key, generation),
            code=failure.code,
            message=failure.message,
            reason_code=reason.code,
            reason_message=scrub(reason.message),
            retention=self._workload.retention,
            letter_retention=self._workload.letter_retention,
        )

    def _exhausted(self, failure: Failure, attempt: int) -> Reason:
        """The workload's words for it; were they to fail, the job must still end as a dead letter."""
        try:
            return self._workload.exhausted(failure, attempt)
        except Exception:  # noqa: BLE001 - a workload's own code
            return Workload.exhausted(self._workload, failure, attempt)

    def _wait(self, attempt: int, asked: timedelta | None) -> timedelta:
        """The policy's wait, or the longer one that the other side asked for."""
        try:
            delay = self._workload.retry.delay(attempt, self._random)
        except Exception:  # noqa: BLE001 - a workload's own policy
            delay = ExponentialBackoff().delay(attempt, self._random)
        return delay if asked is None else max(delay, asked)
