"""Outcomes: what a handler says became of a job.

Handlers return one of these. Exceptions are surprises; ``holdfast.engine.failures`` turns them into outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .effects import Effect


@dataclass(frozen=True, slots=True)
class Done:
    """The work succeeded: commit the effects, mark the job processed."""

    effects: Sequence[Effect] = ()
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The work failed for a reason that may pass. Costs an attempt; the last one dead-letters the job.

    ``after`` is the least wait that the other side asked for; the retry policy may wait longer.
    """

    code: str
    message: str = ""
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """It is not time yet, and that is nobody's failure. Costs no attempt."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing of this kind can be done until a person has acted, and the job is not at fault.

    The job is released, at no attempt's cost, and its queue is paused in all processes until somebody resumes it.
    """

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Reject:
    """The work can never succeed: dead-letter it now."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """The job outlived its deadline; the effects say so where the workload's readers look."""

    effects: Sequence[Effect] = field(default=())


Outcome = Done | Retry | Snooze | Halt | Reject | Expired
