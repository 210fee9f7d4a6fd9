"""What a program gets for a job that it submitted, and the errors of a job that has no result.

::

    HoldfastError
    ├── Conflict               the key belongs to a job with another content; nothing was accepted
    ├── NotRunning             this Holdfast has not started, has stopped, or its worker has failed
    └── JobError               the job has ended, and has no result
        ├── JobFailed          it is a dead letter: a person decides what happens next
        ├── JobExpired         it was not done in time, and never will be
        └── JobCancelled       its sender cancelled it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from .errors import HoldfastError
from .functions import JobFunction

Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Submission(Generic[Result_co]):
    """The receipt of a job: the ledger has it, and it will end as processed, expired or a dead letter (I1).

    ``duplicate``: the same job was accepted before, and this is the receipt of that job. ``due_at`` is the instant
    before which the job does not run, if it was submitted with a delay. ``job`` is the function of the job, which knows
    the type of the result; None for a workload of the class form.
    """

    workload: str
    key: str
    job_id: str
    duplicate: bool
    received_at: datetime
    due_at: datetime | None = None
    job: JobFunction[Any, Result_co] | None = field(default=None, repr=False, compare=False)


class Conflict(HoldfastError):
    """The key belongs to a job with another content. Nothing was accepted."""

    def __init__(self, workload: str, key: str) -> None:
        super().__init__(f"{workload} has a job with the key {key!r} and another content. Nothing was accepted.")
        self.workload = workload
        self.key = key


class NotRunning(HoldfastError):
    """Holdfast does not run here now: use it inside of ``async with Holdfast(app) as hold``."""


class JobError(HoldfastError):
    """The job has ended without a result."""

    def __init__(self, message: str | None = None, *, workload: str = "", key: str = "") -> None:
        super().__init__(message)
        self.workload = workload
        self.key = key


class JobFailed(JobError):
    """The job failed for good. ``letter_id`` names its dead letter, which has every attempt and its reason."""

    def __init__(self, code: str, message: str, letter_id: str, *, workload: str = "", key: str = "") -> None:
        super().__init__(message, workload=workload, key=key)
        self.code = code
        self.letter_id = letter_id

    def __str__(self) -> str:
        return f"{self.code}: {self.message} (dead letter {self.letter_id})"


class JobExpired(JobError):
    """The job was not done before its time was over."""


class JobCancelled(JobError):
    """The job was cancelled."""
