"""The ledger entry: the record of one job. The ledger is the truth; the queue is a hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, ClassVar

from .effects import Effect


class Status(StrEnum):
    """The state of a job. The legal transitions are in ``holdfast.contracts.transitions``."""

    RECEIVED = "received"
    PROCESSING = "processing"
    PROCESSED = "processed"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether only a person can move the job from here."""
        return self in _TERMINAL


_TERMINAL = frozenset({Status.PROCESSED, Status.DEAD_LETTERED, Status.EXPIRED})


class AttemptOutcome(StrEnum):
    """How an attempt ended, or that it still runs."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a job. It opens when the job is claimed and closes when it is settled."""

    attempt: int
    outcome: AttemptOutcome
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    """Where the error was raised: the handler's own frames first. Bounded and scrubbed, without values of variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """A job to be recorded.

    ``key`` is the identity that decides duplicates; ``job_id`` is the queue's name for the job; ``fingerprint``
    covers the content that two requests with one key must share. ``body`` is the job as JSON text in its workload's
    contract. ``labels`` are small facts to find and show the job by. ``ttl`` gives it a deadline; with
    ``ttl_includes_replays`` that deadline also holds for replays. Otherwise a replay gets a new deadline.

    Jobs with one ``fairness_key`` keep their order, and keys take turns; ``priority`` is then the job's place: see
    :meth:`holdfast.contracts.ports.Ledger.queue_places`. ``effects`` are committed with the entry, if it is new.
    ``warnings`` describe, for people, what was wrong in a job that is worked all the same. ``delivered``: the queue has
    delivered the job to us, so no worker of another system has it.
    """

    workload: str
    key: str
    job_id: str
    body: str
    fingerprint: str
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    delay: timedelta = timedelta(0)
    ttl: timedelta | None = None
    ttl_includes_replays: bool = False
    replay_of: str | None = None
    fairness_key: str | None = None
    effects: Sequence[Effect] = ()
    warnings: Sequence[str] = ()
    delivered: bool = False


class RecordedAs(StrEnum):
    """How the ledger recorded a new entry."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger's answer to one :class:`NewEntry`. For a duplicate, the facts are those of the existing entry.

    ``queued``: the store has put the job into its queue in the same transaction, so the caller need not publish it.
    """

    recorded_as: RecordedAs
    job_id: str
    labels: Mapping[str, str]
    first_seen_at: datetime
    status: Status
    queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The whole record of a job, as read back."""

    workload: str
    key: str
    job_id: str
    generation: int
    status: Status
    body: str
    labels: Mapping[str, str]
    attempts: tuple[Attempt, ...]
    attempt_count: int
    fence: int
    priority: int
    first_seen_at: datetime
    updated_at: datetime
    not_before: datetime
    deadline: datetime | None = None
    lease_until: datetime | None = None
    expires_at: datetime | None = None
    last_error_code: str | None = None
    last_error_message: str | None = None
    note: str | None = None
    result: Mapping[str, Any] | None = None
    progress: Mapping[str, Any] | None = None
    """How far the job is, as its handler told last: ``done``, ``total``, ``note``, and ``at`` on the store's clock."""
    replay_of: str | None = None
    warnings: tuple[str, ...] = ()


# --- claiming -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """The job is ours until the lease ends; an attempt was opened."""

    job_id: str
    key: str
    generation: int
    fence: int
    attempt: int
    body: str
    labels: Mapping[str, str]
    first_seen_at: datetime
    deadline: datetime | None


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The job is ours, but lost workers used up its attempts: dead-letter the job (I6). No attempt was opened."""

    job_id: str
    key: str
    generation: int
    fence: int
    attempt: int
    """Its last attempt."""
    body: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The job is ours, but its last worker was lost after the job had passed its point of no return (I11).

    Nobody knows whether the irreversible work was done: dead-letter the job. The lost attempt is closed, and no new
    attempt was opened.
    """

    job_id: str
    key: str
    generation: int
    fence: int
    attempt: int
    """The lost attempt."""
    body: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """The job is ours, but its deadline has passed, or it was cancelled: expire it (I10). No attempt was opened."""

    job_id: str
    key: str
    generation: int
    fence: int
    body: str
    cancelled: bool = False
    attempt: ClassVar[int] = 0
    """This claim does not tell the last attempt."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """Another worker holds the job, or its next attempt is not due. Claim again after the given time."""

    job_id: str
    after: timedelta


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """The job has reached a terminal state; the queue's copy can go. ``result`` is what its handler returned."""

    job_id: str
    status: Status
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The ledger has no such job: an external producer put it into the queue. Adopt it."""

    job_id: str


Held = Claimed | Exhausted | Interrupted | Overdue
"""The claims after which the job is ours."""

ClaimResult = Held | NotNow | AlreadySettled | Unrecorded


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof of a claim: it holds while the entry is ``processing`` and its fence is still this one (I4)."""

    job_id: str
    fence: int


class Cancelled(Enum):
    """What became of a cancellation. Only ``TOO_LATE`` is false."""

    ENDS = "ends"
    """The job waited: it will not run any more."""
    STOPS = "stops"
    """The job is in work: its worker will learn that it should stop, and the job will not run again."""
    TOO_LATE = "too late"
    """The job is settled, unknown, or in work and cannot be stopped."""

    def __bool__(self) -> bool:
        return self is not Cancelled.TOO_LATE


@dataclass(frozen=True, slots=True)
class DueEntry:
    """A job that is not settled. ``after`` is the remaining wait before its next attempt.

    ``changed_at`` is the time of the entry's last change. ``foreign``: another system's worker writes this entry, so
    the entry itself shows how far the job is.
    """

    job_id: str
    body: str
    priority: int
    attempt_count: int
    after: timedelta
    generation: int
    changed_at: datetime
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class QueuePlaces:
    """The places of a workload's jobs: see :meth:`holdfast.contracts.ports.Ledger.queue_places`.

    ``front`` is the place that is being worked on or comes next, and 0 if no job waits. ``ends`` has, for each fairness
    key with unsettled jobs, the place of its last job.
    """

    front: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning removed: the number of entries, and the letters of each workload (the queue removes them too)."""

    entries: int = 0
    letters: Mapping[str, list[str]] = field(default_factory=dict)
    records: int = 0
