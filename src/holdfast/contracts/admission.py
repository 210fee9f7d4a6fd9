"""What an HTTP route and the admission of a workload pass to each other."""

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
    """How a request was signed; kept with the job as ``signatureMeta`` (C10)."""

    algorithm: str
    timestamp: int
    signature: str


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


@dataclass(frozen=True, slots=True)
class AdmittedDocument(Admitted):
    """A file to read. ``cached`` is the finished result, if the same file was read with the same settings before."""

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
