"""Making entries of jobs that are refused, and queue jobs out of entries."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.workload import Workload

from .readers import Readers

REFUSED: Final = "_refused"
"""The label that says why an entry must not be handled."""
REFUSED_BECAUSE: Final = "_because"
"""The label that says it in words."""


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
    return QueueJob(job_id, body, workload.job_name or workload.name, priority, delay)


def body_at_attempt(workload: Workload[Any], body: str, attempt: int) -> str:
    """The body with the attempt's number in it, where the contract has a place for one."""
    try:
        data = workload.contract.model_validate_json(body)
        changed = workload.at_attempt(data, attempt)
        return body if changed is data else changed.model_dump_json()
    except Exception:  # noqa: BLE001 - the queue's copy is a hint: the number in it may lag
        return body
