"""A dead letter in the queue ``email:send:dlq`` (:class:`~.contract.EmailDeadLetter`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import Attempt, DeadLetter, isoformat

from .contract import MAX_ERROR_CODE, MAX_ERROR_REASON
from .texts import cut


def dead_letter_payload(letter: DeadLetter, payload: object) -> Mapping[str, Any]:
    """The letter, with its masked job. It is not validated: a job that broke its contract gets a letter too."""
    job = payload if isinstance(payload, dict) else {}
    published: dict[str, Any] = {
        "jobId": letter.job_id,
        "outboxId": _text(job.get("outboxId")) or letter.job_id,
        "companyId": letter.labels.get("companyId") or _text(job.get("companyId")) or "unknown",
        "payload": payload,
        "failedAttempts": letter.attempt_count,
        "lastFailureReason": cut(letter.reason_message or letter.reason_code, MAX_ERROR_REASON),
        "lastFailureCode": cut(letter.reason_code, MAX_ERROR_CODE),
        "failedAt": isoformat(letter.created_at),
        "attemptHistory": [_attempt(each) for each in letter.attempts],
    }
    enqueued = _text(job.get("enqueuedAt"))
    if enqueued is not None:
        published["enqueuedAt"] = enqueued
    return published


def _attempt(attempt: Attempt) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.value,
        "errorCode": cut(attempt.error_code or attempt.outcome.value.upper(), MAX_ERROR_CODE),
        "startedAt": isoformat(attempt.started_at),
    }
    if attempt.error_message is not None:
        shown["errorMessage"] = cut(attempt.error_message, MAX_ERROR_REASON)
    if attempt.finished_at is not None:
        shown["finishedAt"] = isoformat(attempt.finished_at)
    return shown


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
