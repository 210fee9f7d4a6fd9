"""Settlements: what the engine asks the store to commit for a claimed job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .effects import Effect
from .ledger import Lease, Status


@dataclass(frozen=True, slots=True)
class Complete:
    """``processing -> processed``, with the effects; the entry is kept for ``retention``."""

    retention: timedelta
    effects: Sequence[Effect] = ()
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RetryLater:
    """``processing -> failed``; the next attempt may start after ``after``."""

    after: timedelta
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class HandBack:
    """Undo the claim: the attempt is withdrawn and the entry is as it was before. ``after`` delays the next claim."""

    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Bury:
    """``processing -> failed -> dead_lettered`` in one commit, with the dead letter (I8).

    ``code`` and ``message`` close the attempt; ``reason_code`` and ``reason_message`` go on the dead letter.
    """

    letter_id: str
    code: str
    message: str
    reason_code: str
    reason_message: str
    retention: timedelta
    letter_retention: timedelta


@dataclass(frozen=True, slots=True)
class Expire:
    """``processing -> failed -> expired`` in one commit, with the effects."""

    retention: timedelta
    effects: Sequence[Effect] = ()


Verdict = Complete | RetryLater | HandBack | Bury | Expire


@dataclass(frozen=True, slots=True)
class Settlement:
    """A verdict on a job that we hold the lease of."""

    workload: str
    lease: Lease
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a settlement.

    ``status`` is None when the lease was no longer ours: nothing was written (I4). ``note`` tells of an effect that
    did not apply, such as ``ignored_stale``.
    """

    job_id: str
    status: Status | None
    note: str | None = None

    @property
    def stale(self) -> bool:
        """Whether another worker owns the job now, or it is settled already."""
        return self.status is None
