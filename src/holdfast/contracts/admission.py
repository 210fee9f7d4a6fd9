"""What passes between a door (an HTTP route) and the workload behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from .effects import Effect
from .errors import HoldfastError


@dataclass(frozen=True, slots=True)
class SignatureMeta:
    """How a request was signed; kept with the job (seed 000, ``signatureMeta``)."""

    algorithm: str
    timestamp: int
    signature: str


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong with a body: where, and what. Never the offending value (I14)."""

    field: str
    problem: str


class InvalidContent(HoldfastError):
    """The body does not fulfil its contract."""

    def __init__(self, problems: Sequence[FieldProblem], message: str | None = None) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that may come in: its data, how its sender wants it, and what is written together with it.

    ``due`` is the instant that ``delay`` ends at, where there is a delay.
    """

    data: BaseModel
    priority: int = 0
    delay: timedelta = timedelta(0)
    due: datetime | None = None
    effects: Sequence[Effect] = ()


@dataclass(frozen=True, slots=True)
class AdmittedDocument(Admitted):
    """A file to be read. ``cached`` is the finished result, where the same file was read in the same way before."""

    cached: Mapping[str, Any] | None = None


class NotAcceptable(HoldfastError):
    """The body fulfils its contract, and still cannot be accepted as things are."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__()
        self.problems = tuple(problems)


class RecipientSuppressed(NotAcceptable):
    """An address of this email bounced or complained before, or was suppressed by an operator."""


class UnknownReference(NotAcceptable):
    """The request refers to something that its sender does not have."""


class UnknownRecipient(NotAcceptable):
    """The request names a recipient that its sender does not have."""


class NotificationRefused(HoldfastError):
    """The notification is not from a topic that is trusted here."""
