"""What an HTTP route and the admission of a workload pass to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from pydantic import BaseModel

from .effects import Effect
from .errors import HoldfastError


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A cause of an error, as a client of the API sees it: its name, the HTTP status, and one sentence for a person.

    ``retry_after`` is the number of seconds after which the same request may be sent again.
    """

    value: str
    status: int
    message: str
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem of a body: the field and the broken rule, and never the value (I14)."""

    field: str
    problem: str


class InvalidContent(HoldfastError):
    """The body does not fulfil its contract."""

    def __init__(self, problems: Sequence[FieldProblem], message: str | None = None) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class DelayTooLong(InvalidContent):
    """The job would expire before its delay is over."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that may be accepted: its data, the sender's wishes, and the effects that are written with it.

    ``due`` is the instant at which ``delay`` ends, where there is a delay.
    """

    data: BaseModel
    priority: int = 0
    delay: timedelta = timedelta(0)
    due: datetime | None = None
    effects: Sequence[Effect] = ()


class NotAcceptable(HoldfastError):
    """The body fulfils its contract, and still cannot be accepted as things are. A subclass may have its own code."""

    code: ClassVar[ErrorCode] = ErrorCode(
        "NOT_ACCEPTABLE", 422, "The body fulfils its contract, but it cannot be accepted here."
    )

    def __init__(self, problems: Sequence[FieldProblem] = ()) -> None:
        super().__init__()
        self.problems = tuple(problems)
