"""Outcomes: how a handler's work on a job ended.

Handlers return one of these. An exception is unexpected, and ``holdfast.engine.failures`` turns it into a
:class:`Failure`, which is the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .effects import Effect
from .times import Duration, duration


@dataclass(frozen=True, slots=True)
class Done:
    """The work succeeded: commit the effects, mark the job processed."""

    effects: Sequence[Effect] = ()
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reason:
    """Why something failed: a code for programs and a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Failure(Reason):
    """The attempt failed, and whether the job is retried.

    A retry costs an attempt; the last failed attempt dead-letters the job. ``after`` is the shortest wait that the
    other side allows; the retry policy may wait longer. Without ``retry``, the job is dead-lettered now. Handlers
    return or raise the short forms :class:`Retry` and :class:`Reject`. ``traceback`` is where the error was raised, for
    people: the engine fills it.
    """

    retry: bool
    after: timedelta | None = None
    traceback: str | None = field(default=None, compare=False)


class Retry(Failure, Exception):
    """The work failed for a reason that may pass. A handler returns or raises it."""

    def __init__(self, code: str, message: str = "", after: Duration | None = None) -> None:
        super().__init__(code, message, retry=True, after=None if after is None else _wait(after))

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Reject(Failure, Exception):
    """The work can never succeed: dead-letter the job now. A handler returns or raises it."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message, retry=False)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True, init=False)
class Snooze:
    """The job cannot be done yet, and nothing failed. Costs no attempt. ``note`` is a word for people: why it waits."""

    after: timedelta
    note: str | None = None

    def __init__(self, after: Duration, note: str | None = None) -> None:
        object.__setattr__(self, "after", _wait(after))
        object.__setattr__(self, "note", note)


@dataclass(frozen=True, slots=True)
class Halt:
    """No job of this queue can be done until a person has acted. The job is not at fault.

    The job is released and costs no attempt. Its queue is paused in all processes until somebody resumes it.
    """

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline of the job has passed, or its sender cancelled it."""

    effects: Sequence[Effect] = field(default=())


Outcome = Done | Failure | Snooze | Halt | Expired


def _wait(after: Duration) -> timedelta:
    """A ``timedelta`` stays as it is: a moment that has passed already is no mistake of a handler."""
    return after if isinstance(after, timedelta) else duration(after)
