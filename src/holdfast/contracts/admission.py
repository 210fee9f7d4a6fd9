"""What passes between a door (an HTTP route) and the workload behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .errors import HoldfastError


@dataclass(frozen=True, slots=True)
class SignatureMeta:
    """How a request was signed; kept with the job (seed 000, ``signatureMeta``)."""

    algorithm: str
    timestamp: int
    signature: str


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong with a document: where, and what. Never the offending value (I14)."""

    field: str
    problem: str


class InvalidContent(HoldfastError):
    """The document does not fulfil its contract."""

    def __init__(self, problems: Sequence[FieldProblem], message: str | None = None) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
