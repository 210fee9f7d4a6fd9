"""Transitions: the named changes of a job's state, the table of the legal ones, and the settlements that commit them.

Stores apply a transition by compare-and-set on the state that it starts from. A transition with several steps commits
them together. ``docs/lifecycle.md`` draws the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from .dead_letters import ReviewStatus
from .effects import IGNORED_STALE, Effect
from .ledger import Lease, Status
from .queues import Acknowledgement

OVERDUE: Final = "overdue"
"""The note on a job that must not proceed, because its deadline has passed."""

CANCELLED: Final = "withdrawn"
"""The note on a job that expired because its sender cancelled it."""

WORKED_ELSEWHERE: Final = "worked_elsewhere"
"""The note on a job that another system's worker finished."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The job is recorded as ``received``. ``queued``: the same transaction puts the job into its queue."""

    queued: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """The queue has the job, for the first time or for a replay. A worker may have begun already."""


@dataclass(frozen=True, slots=True)
class AskToStop:
    """The sender cancelled the job while it is in work: its handler will learn of it. It may have ended by now."""


@dataclass(frozen=True, slots=True)
class Complete:
    """``processing -> processed``, with the effects; the entry is kept for ``retention``. ``note`` names who did it."""

    retention: timedelta
    effects: Sequence[Effect] = ()
    result: Mapping[str, Any] | None = None
    note: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether another system's worker did the job, and returned ``result``."""
        return self.note == WORKED_ELSEWHERE


@dataclass(frozen=True, slots=True)
class RetryLater:
    """``processing -> failed``; the next attempt may start after ``after``."""

    after: timedelta
    code: str
    message: str
    effects: Sequence[Effect] = ()
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Undo the claim: the attempt does not count, and the entry is as before. ``after`` delays the next claim.

    ``note`` is a word for people about why the job waits; ``snoozed``: the handler asked for the wait.
    """

    after: timedelta = timedelta(0)
    effects: Sequence[Effect] = ()
    note: str | None = None
    snoozed: bool = False


@dataclass(frozen=True, slots=True)
class Proceed:
    """The point of no return: commit the effects and a mark, and keep the lease and the attempt.

    From now on the job is not run again automatically: if its worker is lost, the next claim is ``Interrupted``. The
    mark is removed when the job is settled. With ``repeatable`` only the effects are committed, without the mark.

    Past the deadline nothing is written, and the note of the answer is ``overdue``: an expired job must not proceed
    (I10).
    """

    effects: Sequence[Effect] = ()
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class MoveToDeadLetters:
    """``processing -> failed -> dead_lettered`` in one commit, with the dead letter (I8).

    ``code``, ``message`` and ``traceback`` close the attempt. ``reason_code`` and ``reason_message`` are written on the
    dead letter. So is ``body``, if it is given; otherwise the letter has the job's own body.
    """

    letter_id: str
    code: str
    message: str
    reason_code: str
    reason_message: str
    retention: timedelta
    letter_retention: timedelta
    effects: Sequence[Effect] = ()
    body: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """``processing -> failed -> expired`` in one commit, with the effects. ``note`` names another cause than age."""

    retention: timedelta
    effects: Sequence[Effect] = ()
    note: str | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the job's sender cancelled it."""
        return self.note == CANCELLED


def noted_result(result: Mapping[str, Any] | None, note: str | None) -> Mapping[str, Any] | None:
    """A handler's result as the ledger and the queue keep it. An effect that was too old to apply is noted in it."""
    return {"note": note, **result} if result is not None and note == IGNORED_STALE else result


Ending = Complete | RetryLater | Release | MoveToDeadLetters | Expire
"""A transition that ends the lease."""

Transition = Accept | Publish | AskToStop | Ending
"""What :meth:`holdfast.contracts.workload.Workload.on_transition` is called with."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A transition of a job whose lease we hold, and what the queue does with its delivery, if it had one."""

    workload: str
    lease: Lease
    transition: Ending | Proceed
    acknowledgement: Acknowledgement | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a settlement.

    ``status`` is None if the lease was no longer ours: nothing was written (I4). ``note`` is set if an effect did not
    apply, such as ``ignored_stale``. A job that may proceed is ``processing``. So is a job that may not, with the note
    ``overdue``, and its lease is still ours.
    """

    job_id: str
    status: Status | None
    note: str | None = None

    @property
    def stale(self) -> bool:
        """Whether another worker owns the job now, or it is settled already."""
        return self.status is None


# --- the one table of legal transitions (I7), for ledger entries and for the review of dead letters -----------------


class TransitionName(StrEnum):
    """One name per transition of a ledger entry."""

    CLAIM = "claim"
    RECLAIM = "reclaim"  # the lease ran out: the orphaned attempt is closed as lost
    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"  # shutdown or snooze: the entry is as it was before the claim, the attempt does not count
    DEAD_LETTER = "dead_letter"
    EXPIRE = "expire"
    REPLAY = "replay"


TRANSITIONS: Final[dict[TransitionName, tuple[tuple[Status, ...], ...]]] = {
    TransitionName.CLAIM: ((Status.RECEIVED, Status.PROCESSING), (Status.FAILED, Status.PROCESSING)),
    TransitionName.RECLAIM: ((Status.PROCESSING, Status.PROCESSING),),
    TransitionName.COMPLETE: ((Status.PROCESSING, Status.PROCESSED),),
    TransitionName.RETRY: ((Status.PROCESSING, Status.FAILED),),
    TransitionName.RELEASE: ((Status.PROCESSING, Status.RECEIVED), (Status.PROCESSING, Status.FAILED)),
    TransitionName.DEAD_LETTER: ((Status.PROCESSING, Status.FAILED, Status.DEAD_LETTERED),),
    TransitionName.EXPIRE: ((Status.PROCESSING, Status.FAILED, Status.EXPIRED),),
    TransitionName.REPLAY: ((Status.DEAD_LETTERED, Status.RECEIVED),),
}

EDGES: Final[frozenset[tuple[Status, Status]]] = frozenset(
    edge for paths in TRANSITIONS.values() for path in paths for edge in pairwise(path)
)
"""Every single step that some transition takes."""

REVIEW_STEPS: Final[dict[ReviewStatus, frozenset[ReviewStatus]]] = {
    ReviewStatus.PENDING: frozenset({ReviewStatus.REVIEWED}),
    ReviewStatus.REVIEWED: frozenset({ReviewStatus.REPLAYED, ReviewStatus.CLOSED}),
    ReviewStatus.REPLAYED: frozenset({ReviewStatus.CLOSED}),
    ReviewStatus.CLOSED: frozenset(),
}


def legal(start: Status, end: Status) -> bool:
    """Whether an entry may go from one state to the other in one step."""
    return (start, end) in EDGES
