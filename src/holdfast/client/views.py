"""The answers of the API as objects: fields by their Python names, with times as ``datetime``.

An answer may have more fields than a view knows, because a newer gateway answered: ``raw`` has all of them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, Final, Self, TypeVar, get_args, get_origin, get_type_hints

from .errors import UnexpectedAnswer

_WIRE: Final = "wire"
_ENDED: Final = frozenset({"processed", "dead_lettered", "expired"})
_CANCELLED: Final = frozenset({"cancelled", "withdrawn"})
"""The notes of an expired job that somebody cancelled."""

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The base of all views."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer, with the names of the wire."""

    @classmethod
    def read(cls, document: object) -> Self:
        """The view of a JSON object. Raises :class:`UnexpectedAnswer` for anything else."""
        if not isinstance(document, dict):
            message = f"The answer should be a {cls.__name__}, and is not a JSON object."
            raise UnexpectedAnswer(message)
        values: dict[str, Any] = {"raw": document}
        view: Any = cls  # for mypy, type[Self] has no hash
        for each in _members(view):
            value = document.get(each.wire, document.get(each.name))
            if value is None and each.optional:
                continue
            try:
                values[each.name] = each.read(value)
            except (TypeError, ValueError) as error:
                message = f"The answer should be a {cls.__name__}, but its {each.wire} is missing or wrong."
                raise UnexpectedAnswer(message) from error
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    wire: str
    optional: bool
    read: Read


@cache
def _members(view: Any) -> tuple[_Member, ...]:  # noqa: ANN401 - a class of views
    hints = get_type_hints(view)
    return tuple(
        _Member(
            each.name,
            each.metadata.get(_WIRE, _camel(each.name)),
            each.default is not MISSING or each.default_factory is not MISSING,
            _reader(hints[each.name]),
        )
        for each in fields(view)
        if each.name != "raw"
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def _reader(hint: Any) -> Read:  # noqa: ANN401, PLR0911 - a type; one line for each kind of type
    """A function that reads a JSON value as this type, or raises ``ValueError`` or ``TypeError``."""
    if get_origin(hint) is types.UnionType:
        inner = next(each for each in get_args(hint) if each is not types.NoneType)
        return _reader(inner)
    if get_origin(hint) is tuple:
        read = _reader(get_args(hint)[0])
        return lambda value: tuple(map(read, _of(list, value)))
    if hint is datetime:
        return datetime.fromisoformat
    if isinstance(hint, type) and issubclass(hint, View):
        return hint.read
    if hint is float:
        return lambda value: float(_of((int, float), value))
    if hint in {str, int, bool}:
        return lambda value: _of(hint, value)
    return lambda value: value


Value = TypeVar("Value")


def _of(kind: type[Value] | tuple[type[Value], ...], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError
    return value


# --- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(View):
    """The receipt of a job. A duplicate gets the first receipt again, with ``duplicate`` true."""

    workload: str
    key: str
    job_id: str
    duplicate: bool
    queued: bool
    received_at: datetime
    due_at: datetime | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(View):
    """One attempt of a job."""

    attempt: int
    outcome: str
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(View):
    """How far a running job is, as its handler said."""

    done: float
    total: float | None = None
    note: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState(View):
    """The state of a job. A list has no attempts, no result and no payload."""

    workload: str
    key: str
    job_id: str
    status: str
    generation: int = 1
    attempt_count: int = 0
    attempts: tuple[Attempt, ...] = field(default=(), metadata={_WIRE: "attemptHistory"})
    last_error_code: str | None = None
    last_error_message: str | None = None
    first_seen_at: datetime | None = None
    updated_at: datetime | None = None
    due_at: datetime | None = None
    next_attempt_at: datetime | None = None
    deadline: datetime | None = None
    note: str | None = None
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    result: Mapping[str, Any] | None = None
    dead_letters: tuple[str, ...] = ()
    payload: Any = None

    @property
    def ended(self) -> bool:
        """Whether the job is processed, dead-lettered or expired."""
        return self.status in _ENDED

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the job."""
        return self.status == "expired" and self.note in _CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(View):
    """``cancelled``: the job will not run. ``stopping``: it runs, and was asked to stop. Only ``too_late`` is false."""

    workload: str
    key: str
    state: str

    def __bool__(self) -> bool:
        return self.state != "too_late"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer(View):
    """The answer for one item of a batch: what it would have got alone."""

    status_code: int
    answer: Any


# --- the shipped workloads --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReceipt(View):
    """The receipt of a courier event."""

    event_id: str
    idempotency_key: str
    duplicate: bool
    queued: bool
    received_at: datetime
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailReceipt(View):
    """The receipt of an email: it will be sent, or end with a reason."""

    outbox_id: str
    status: str
    duplicate: bool
    queued: bool
    received_at: datetime
    request_id: str | None = None
    scheduled_for: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailState(View):
    """An email and its status. Addresses are masked."""

    outbox_id: str
    status: str
    to: str | None = None
    subject: str | None = None
    external_id: str | None = None
    tags: tuple[str, ...] = ()
    attempt: int = 0
    last_error_code: str | None = None
    last_error_message: str | None = None
    enqueued_at: datetime | None = None
    scheduled_for: datetime | None = None
    sent_at: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReceipt(View):
    """The receipt of a document. ``cached``: the same file was read before, and its result is there already."""

    job_id: str
    status: str
    duplicate: bool
    cached: bool
    queued: bool
    accepted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentError(View):
    """Why a document could not be read."""

    error_type: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState(View):
    """A document and how far it is."""

    job_id: str
    status: str
    stage: str | None = None
    progress: float = 0.0
    pages_done: int | None = None
    pages: int | None = None
    chunks_done: int | None = None
    chunks: int | None = None
    attempts: int = 0
    error: DocumentError | None = None
    warnings: tuple[str, ...] = ()
    filename: str | None = None
    metadata: Mapping[str, Any] | None = None
    accepted_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether the document is completed, failed or cancelled."""
        return self.status in {"COMPLETED", "FAILED", "CANCELLED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentResult(View):
    """The result of a document. ``content`` has pages with lines, or timed segments."""

    job_id: str
    status: str
    pages: int | None = None
    engine: str | None = None
    language: str | None = None
    confidence: float | None = None
    warnings: tuple[str, ...] = ()
    cached: bool = False
    error: DocumentError | None = None
    content: Mapping[str, Any] | None = None


# --- operators --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(View):
    """One decision of a person about a dead letter."""

    step: str
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(View):
    """A job that failed for good. A list has no attempts, no decisions and no payload."""

    id: str
    workload: str
    key: str = field(metadata={_WIRE: "idempotencyKey"})
    job_id: str
    generation: int
    reason_code: str = field(metadata={_WIRE: "terminalReasonCode"})
    reason_message: str = field(metadata={_WIRE: "terminalReasonMessage"})
    attempt_count: int
    review_status: str
    created_at: datetime
    attempts: tuple[Attempt, ...] = field(default=(), metadata={_WIRE: "attemptHistory"})
    payload: Any = field(default=None, metadata={_WIRE: "payloadSnapshot"})
    decisions: tuple[Decision, ...] = ()
    replayed_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport(View):
    """What a replay of many letters did; or would do, with ``dry_run``."""

    dry_run: bool
    matched: int
    replayed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    refused: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState(View):
    """A schedule: when it ticks, its last tick and the next ones, and whether it is paused."""

    name: str
    workload: str
    cron: str | None = None
    every_ms: int | None = None
    timezone: str = "UTC"
    next: tuple[datetime, ...] = ()
    last_tick: datetime | None = None
    last_key: str | None = None
    last_status: str | None = None
    paused: bool = False
    paused_by: str | None = None
    reason: str | None = None
