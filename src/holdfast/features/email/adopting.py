"""Adoption of email jobs that an external producer put straight into the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from holdfast import Adopted, Delivery, FieldProblem, InvalidContent

from .contract import DEFAULT_TTL, EmailSendJob, problems_of

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
