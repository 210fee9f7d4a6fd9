"""Settlements: what the engine asks the store to commit for a claimed job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from .effects import IGNORED_STALE, Effect
from .ledger import Lease, Status


@dataclass(frozen=True, slots=True)
class Complete:
    """``processing -> processed``, with the effects; the entry is kept for ``retention``. ``note`` says who did it."""

    retention: timedelta
    effects: Sequence[Effect] = ()
    result: Mapping[str, Any] | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RetryLater:
    """``processing -> failed``; the next attempt may start after ``after``."""

    after: timedelta
    code: str
    message: str
    effects: Sequence[Effect] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Undo the claim: the attempt is cancelled and the entry is as it was before. ``after`` delays the next claim."""

    after: timedelta = timedelta(0)
    effects: Sequence[Effect] = ()


@dataclass(frozen=True, slots=True)
class Proceed:
    """The job is about to do what cannot be undone: commit the effects, and keep the lease and the attempt.

    From now on nobody runs the job again by itself: should its worker vanish, the next claim is ``Interrupted``. The
    mark is gone once the job is settled. With ``repeatable`` only the effects are committed, and no mark is left.

    Past the deadline nothing is written, and the answer's note is ``overdue``: an expired job does not proceed (I10).
    """

    effects: Sequence[Effect] = ()
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class MoveToDeadLetters:
    """``processing -> failed -> dead_lettered`` in one commit, with the dead letter (I8).

    ``code`` and ``message`` close the attempt; ``reason_code`` and ``reason_message`` go on the dead letter, and so
    does ``body`` where it is given: otherwise the letter keeps the job's own.
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


@dataclass(frozen=True, slots=True)
class Expire:
    """``processing -> failed -> expired`` in one commit, with the effects. ``note`` says what else ended it."""

    retention: timedelta
    effects: Sequence[Effect] = ()
    note: str | None = None


def noted_result(result: Mapping[str, Any] | None, note: str | None) -> Mapping[str, Any] | None:
    """A handler's result as it is kept and as the queue gets it: it says when an effect was too old to apply."""
    return {"note": note, **result} if result is not None and note == IGNORED_STALE else result


Transition = Complete | RetryLater | Release | Proceed | MoveToDeadLetters | Expire

OVERDUE: Final = "overdue"
"""The note on a job that was not let proceed: its deadline has passed."""

CANCELLED: Final = "withdrawn"
"""The note on a job that expired because its sender did not want it any more."""

WORKED_ELSEWHERE: Final = "worked_elsewhere"
"""The note on a job that somebody else's worker finished."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A transition on a job that we hold the lease of."""

    workload: str
    lease: Lease
    transition: Transition


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement.

    ``status`` is None when the lease was no longer ours: nothing was written (I4). ``note`` tells of an effect that
    did not apply, such as ``ignored_stale``. A job that may proceed is ``processing``; one that is too late for it is
    too, with the note ``overdue``, and the lease is still ours.
    """

    job_id: str
    status: Status | None
    note: str | None = None

    @property
    def stale(self) -> bool:
        """Whether another worker owns the job now, or it is settled already."""
        return self.status is None
