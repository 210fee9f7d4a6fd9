"""Making entries of jobs that are refused, and queue jobs out of entries."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from pydantic import BaseModel

from holdfast.contracts.ledger import NewEntry
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.workload import Workload

from .hooks import Hooks, call_hook

REFUSED: Final = "_refused"
"""The label that says why an entry must not be handled."""
REFUSED_BECAUSE: Final = "_because"
"""The label that says it in words."""


def refused_entry(workload: Workload[Any], data: str, why: str, because: str, *, own_key: bool = False) -> NewEntry:
    """An entry for a job that came straight from a queue and cannot be taken as it is.

    Its first claim makes it a dead letter, for a person to see. It keeps the names that it has by its own words, so
    that people find it. With ``own_key`` its key is its own as well, where that can be read; otherwise the key is made
    of the content. Nobody will run it, so the ledger keeps no more of it than its dead letter does; what was wrong with
    it can no longer be told from that, and is told here.
    """
    digest = sha256(data.encode(errors="surrogatepass")).hexdigest()
    identity = Hooks(workload).identify(data)
    key = identity.key if own_key else None
    return NewEntry(
        workload=workload.name,
        key=key or f"{why}:{digest[:32]}",
        job_id=f"{why.lower()}-{digest[:32]}",
        body=Hooks(workload).letter_body(data) or data,
        fingerprint=digest,
        labels={**identity.labels, REFUSED: why, REFUSED_BECAUSE: because},
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
    data = Hooks(workload).data_of(body)
    if data is None:
        return body

    def changed() -> str:
        numbered: BaseModel = workload.at_attempt(data, attempt)
        return body if numbered is data else numbered.model_dump_json()

    # The queue's copy is a hint: an old number in it does no harm.
    return call_hook(workload, "at_attempt", changed, lambda: body)
