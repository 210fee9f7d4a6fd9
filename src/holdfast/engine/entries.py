"""Making ledger entries for refused jobs, and queue jobs from entries."""

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
"""The label with the code of the problem: an entry with this label must not be handled."""
REFUSED_BECAUSE: Final = "_because"
"""The label with a sentence about the problem."""


def refused_entry(workload: Workload[Any], data: str, code: str, reason: str, *, own_key: bool = False) -> NewEntry:
    """An entry for a job that came straight from a queue and cannot be accepted.

    Its first claim makes it a dead letter, for a person to read. The entry has the names in the job's own content, so
    that people find it. With ``own_key`` it has the key in that content too, if the key can be read; otherwise the key
    is made of the content. The job will not run, so the ledger keeps no more of it than its dead letter does. The
    problem cannot be seen in that, so the labels have it.
    """
    digest = sha256(data.encode(errors="surrogatepass")).hexdigest()
    identity = Hooks(workload).identify(data)
    key = identity.key if own_key else None
    return NewEntry(
        workload=workload.name,
        key=key or f"{code}:{digest[:32]}",
        job_id=f"{code.lower()}-{digest[:32]}",
        body=Hooks(workload).letter_body(data) or data,
        fingerprint=digest,
        labels={**identity.labels, REFUSED: code, REFUSED_BECAUSE: reason},
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
    """The body with the attempt's number, if the contract has a field for it."""
    data = Hooks(workload).data_of(body)
    if data is None:
        return body

    def changed() -> str:
        numbered: BaseModel = workload.at_attempt(data, attempt)
        return body if numbered is data else workload.write(numbered)

    # The queue's copy is a hint: an old number in it does no harm.
    return call_hook(workload, "at_attempt", changed, lambda: body)
