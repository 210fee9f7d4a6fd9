"""The two queues as other programs use them: jobs that an external producer put in, and dead letters to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from holdfast import Adopted, Attempt, DeadLetter, Delivery, FieldProblem, InvalidContent, isoformat

from .contract import DEFAULT_TTL, MAX_ERROR_CODE, MAX_ERROR_REASON, EmailSendJob, problems_of
from .texts import cut

OTHER_JOB_ID: Final = "The job's id in the queue is not its outboxId; the outboxId counts."

_MAX_PROBLEMS: Final = 10


def adopted(delivery: Delivery) -> Adopted[EmailSendJob]:
    """The job. Its identity is the outbox id, even if its id in the queue differs.

    Raises :class:`InvalidContent` if the job breaks the contract. Then the job becomes a dead letter.
    """
    problems = list(_option_problems(delivery.opts))
    try:
        job = EmailSendJob.model_validate_json(delivery.data)
    except ValidationError as error:
        raise InvalidContent([*problems_of(error, "job"), *problems][:_MAX_PROBLEMS]) from None
    if problems:
        raise InvalidContent(problems)
    warnings = () if delivery.job_id.lower() == job.outboxId else (OTHER_JOB_ID,)
    return Adopted(job, warnings, job_id=job.outboxId)


def _option_problems(opts: str) -> Iterator[FieldProblem]:
    """Check ``ttl``: BullMQ stores it and does not use it."""
    try:
        given = json.loads(opts)
    except (ValueError, RecursionError):
        return
    ttl = given.get("ttl") if isinstance(given, dict) else None
    if isinstance(ttl, int | float) and ttl > DEFAULT_TTL:
        yield FieldProblem("opts.ttl", f"must be at most {DEFAULT_TTL} milliseconds, which are 24 hours")


def dead_letter_payload(letter: DeadLetter, payload: object) -> Mapping[str, Any]:
    """The letter as :class:`~.contract.EmailDeadLetter`, with its masked job.

    It is not validated: a job that broke its contract gets a letter too.
    """
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
