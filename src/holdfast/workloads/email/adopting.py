"""Email jobs that another program put straight into the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.queues import Delivery
from holdfast.contracts.workload import Adopted

from .contract import DEFAULT_TTL, EmailSendJob
from .problems import problems_of

OTHER_JOB_ID: Final = "The job's id in the queue is not its outboxId; the outboxId counts."

_TOLD: Final = 10


def adopted(delivery: Delivery) -> Adopted[EmailSendJob]:
    """The job. Its identity is the outbox id, whatever the queue calls it.

    Raises :class:`InvalidContent` where it breaks the contract: what follows is a dead letter, which a person reads.
    """
    problems = list(_option_problems(delivery.opts))
    try:
        job = EmailSendJob.model_validate_json(delivery.data)
    except ValidationError as error:
        raise InvalidContent([*problems_of(error, "job"), *problems][:_TOLD]) from None
    if problems:
        raise InvalidContent(problems)
    warnings = () if delivery.job_id.lower() == job.outboxId else (OTHER_JOB_ID,)
    return Adopted(job, warnings, job_id=job.outboxId)


def _option_problems(opts: str) -> Iterator[FieldProblem]:
    """BullMQ keeps a ``ttl`` and takes no notice of it."""
    try:
        given = json.loads(opts)
    except (ValueError, RecursionError):
        return
    ttl = given.get("ttl") if isinstance(given, dict) else None
    if isinstance(ttl, int | float) and ttl > DEFAULT_TTL:
        yield FieldProblem("opts.ttl", f"must be at most {DEFAULT_TTL} milliseconds, which are 24 hours")
