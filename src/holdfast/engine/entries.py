"""Making ledger entries and queue jobs out of a workload's data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from pydantic import BaseModel

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.effects import Effect
from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.queues import QueueJob, usable_job_id
from holdfast.contracts.workload import Workload

from .readers import Readers

REFUSED: Final = "_refused"
"""The label that says why an entry must not be handled."""
REFUSED_BECAUSE: Final = "_because"
"""The label that says it in words."""

_MAX_KEY: Final = 400
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def new_entry(  # noqa: PLR0913 - a job and what its sender wants for it
    workload: Workload[Any],
    data: BaseModel,
    *,
    job_id: str | None = None,
    priority: int = 0,
    delay: timedelta = timedelta(0),
    replay_of: str | None = None,
    lane: str | None = None,
    effects: Sequence[Effect] = (),
) -> NewEntry:
    """The entry to record for a job. Raises :class:`InvalidContent` when its identity cannot be used."""
    key = workload.key(data)
    if not key or len(key) > _MAX_KEY or _UNPRINTABLE.search(key):
        problem = f"must have 1 to {_MAX_KEY} characters, none of them a control character"
        raise InvalidContent([FieldProblem("key", problem)])
    job_id = job_id or workload.job_id(key, data)
    if not usable_job_id(job_id):
        raise InvalidContent([FieldProblem("jobId", "cannot be used as a job id: see holdfast.contracts.queues")])
    return NewEntry(
        workload=workload.name,
        key=key,
        job_id=job_id,
        body=data.model_dump_json(),
        fingerprint=workload.fingerprint(data),
        labels=workload.labels(data),
        priority=priority,
        delay=delay,
        life=workload.life,
        mortal=workload.mortal,
        replay_of=replay_of,
        lane=lane,
        effects=effects,
    )


def refused_entry(workload: Workload[Any], data: str, why: str, because: str) -> NewEntry:
    """An entry for a job that came straight from a queue and cannot be taken as it is.

    Its name is made of its content, so that it is recorded once; its first claim buries it for a person to see. Nobody
    will run it, so the ledger keeps no more of it than its dead letter does; what was wrong with it can no longer be
    told from that, and is told here.
    """
    digest = sha256(data.encode(errors="surrogatepass")).hexdigest()
    return NewEntry(
        workload=workload.name,
        key=f"{why}:{digest[:32]}",
        job_id=f"{why.lower()}-{digest[:32]}",
        body=Readers(workload).letter_body(data) or data,
        fingerprint=digest,
        labels={REFUSED: why, REFUSED_BECAUSE: because},
    )


def queue_job(  # noqa: PLR0913 - a job and what the queue needs to know of it
    workload: Workload[Any],
    job_id: str,
    body: str,
    *,
    attempt: int,
    priority: int = 0,
    delay: timedelta = timedelta(0),
) -> QueueJob:
    """The queue's copy of a job, for its next attempt."""
    if attempt > 1:
        body = body_at_attempt(workload, body, attempt)
    return QueueJob(job_id, body, workload.name, priority, delay)


def body_at_attempt(workload: Workload[Any], body: str, attempt: int) -> str:
    """The body with the attempt's number in it, where the contract has a place for one."""
    try:
        data = workload.contract.model_validate_json(body)
        changed = workload.at_attempt(data, attempt)
        return body if changed is data else changed.model_dump_json()
    except Exception:  # noqa: BLE001 - the queue's copy is a hint: the number in it may lag
        return body
