"""The answers of the API, made from records. Field names on the wire are those of the specification (camelCase)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.ledger import Attempt, AttemptOutcome, LedgerEntry, Status
from holdfast.contracts.times import isoformat

from .errors import Code

Instant = Annotated[
    datetime,
    PlainSerializer(isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class View(BaseModel):
    """The base of all answers with camelCase names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


# --- errors and acknowledgements ----------------------------------------------------------------------------------


class Problem(View):
    """One problem of a request."""

    field: str = Field(description="The field, as a path into the body.", examples=["payload.shipmentId"])
    problem: str = Field(description="What is wrong. The value is never shown.", examples=["Field required"])


class ErrorView(View):
    """Why a request was refused. Nothing was accepted."""

    acknowledged: Literal[False]
    error_code: Code
    message: str = Field(description="A sentence for a person.")
    trace_id: str = Field(description="Quote it when you ask for help.")
    details: list[Problem] | None = Field(default=None, description="Present if single fields are wrong.")


class EventReceipt(View):
    """The event is recorded and will be processed. A duplicate gets the first receipt again."""

    acknowledged: Literal[True]
    event_id: str
    idempotency_key: str
    trace_id: str
    queued: bool = Field(
        description="False: the event is in the ledger, but not yet in the queue. It will be queued later."
    )
    duplicate: bool = Field(description="Whether the same event had been accepted before.")
    received_at: Instant


class JobReceipt(View):
    """The job is recorded and will be processed. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    workload: str
    key: str
    job_id: str
    queued: bool
    duplicate: bool
    received_at: Instant


# --- ledger entries -----------------------------------------------------------------------------------------------


class AttemptView(View):
    """One attempt of a job."""

    attempt: int
    outcome: AttemptOutcome
    worker: str
    started_at: Instant
    finished_at: Instant | None
    error_code: str | None
    error_message: str | None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptView:
        """The view of an attempt in the ledger."""
        return cls(
            attempt=attempt.attempt,
            outcome=attempt.outcome,
            worker=attempt.worker,
            started_at=attempt.started_at,
            finished_at=attempt.finished_at,
            error_code=attempt.error_code,
            error_message=attempt.error_message,
        )


class _EntryView(View):
    """The fields of every ledger entry. ``attemptCount`` is always the length of ``attemptHistory`` (I5)."""

    status: Status
    generation: int = Field(description="1 for the first run; each replay adds 1.")
    attempt_count: int
    attempt_history: list[AttemptView]
    last_error_code: str | None
    last_error_message: str | None
    first_seen_at: Instant
    updated_at: Instant
    expires_at: Instant | None = Field(description="When the record is deleted; null while the job is open.")
    next_attempt_at: Instant | None = Field(description="Earliest time of the next attempt of a failed job.")
    note: str | None = Field(description="For example `ignored_stale`: a newer event had been applied already.")
    warnings: list[str] = Field(description="Problems of a job that an external producer put into the queue.")


class EventView(_EntryView):
    """The state and the attempts of one courier event."""

    idempotency_key: str
    event_id: str | None
    event_type: str | None
    trace_id: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> EventView:
        """The view of an event's entry."""
        return cls(
            idempotency_key=entry.key,
            event_id=entry.labels.get("eventId"),
            event_type=entry.labels.get("eventType"),
            trace_id=entry.labels.get("traceId"),
            **_entry_fields(entry),
        )


class JobView(_EntryView):
    """The state and the attempts of one job."""

    workload: str
    key: str
    job_id: str
    labels: dict[str, str]
    priority: int
    deadline: Instant | None
    result: dict[str, Any] | None
    replay_of: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> JobView:
        """The view of a job's entry."""
        return cls(
            workload=entry.workload,
            key=entry.key,
            job_id=entry.job_id,
            labels=dict(entry.labels),
            priority=entry.priority,
            deadline=entry.deadline,
            result=None if entry.result is None else dict(entry.result),
            replay_of=entry.replay_of,
            **_entry_fields(entry),
        )


def _entry_fields(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "status": entry.status,
        "generation": entry.generation,
        "attempt_count": entry.attempt_count,
        "attempt_history": [AttemptView.of(each) for each in entry.attempts],
        "last_error_code": entry.last_error_code,
        "last_error_message": entry.last_error_message,
        "first_seen_at": entry.first_seen_at,
        "updated_at": entry.updated_at,
        "expires_at": entry.expires_at,
        "next_attempt_at": entry.not_before if entry.status is Status.FAILED else None,
        "note": entry.note,
        "warnings": list(entry.warnings),
    }


# --- shipments ----------------------------------------------------------------------------------------------------


class TimelineEntry(View):
    """One event of a shipment, with its state in the ledger."""

    idempotency_key: str
    event_id: str | None
    event_type: str | None
    status: str | None = Field(description="The state of the shipment, as the courier sent it.")
    occurred_at: str | None
    received_at: str | None
    state: Status = Field(description="The state of the event in the ledger.")
    note: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> TimelineEntry:
        """The view of an event's entry in a timeline."""
        return cls(
            idempotency_key=entry.key,
            event_id=entry.labels.get("eventId"),
            event_type=entry.labels.get("eventType"),
            status=entry.labels.get("status"),
            occurred_at=entry.labels.get("occurredAt"),
            received_at=entry.labels.get("receivedAt") or isoformat(entry.first_seen_at),
            state=entry.status,
            note=entry.note,
        )


class ShipmentView(View):
    """A shipment: its state after the applied events (null until an event is applied), and all its events."""

    shipment_id: str
    order_id: str | None = None
    current_state: str | None = None
    last_event_id: str | None = None
    last_event_type: str | None = None
    last_event_at: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    timeline: list[TimelineEntry] = Field(description="By `occurredAt`, oldest first.")
    timeline_complete: bool = Field(description="False when only the latest events are shown.")

    @classmethod
    def of(
        cls,
        shipment_id: str,
        record: Mapping[str, Any] | None,
        timeline: Sequence[TimelineEntry],
        *,
        complete: bool,
    ) -> ShipmentView:
        """The stored record, with its timeline."""
        return cls.model_validate(
            {**(record or {}), "shipmentId": shipment_id, "timeline": list(timeline), "timelineComplete": complete},
        )


# --- dead letters -------------------------------------------------------------------------------------------------


class DecisionView(View):
    """One decision of a person about a dead letter."""

    step: ReviewStatus
    actor: str
    reason: str
    at: Instant


class LetterSummary(View):
    """A dead letter in a list."""

    id: str
    workload: str
    idempotency_key: str
    job_id: str
    event_id: str | None = Field(description="Only for courier events.")
    event_type: str | None = Field(description="Only for courier events.")
    generation: int
    terminal_reason_code: str
    terminal_reason_message: str
    attempt_count: int
    review_status: ReviewStatus
    created_at: Instant
    updated_at: Instant
    expires_at: Instant
    replayed_as: str | None = Field(description="The job id of the replay, if the replay is a new job.")

    @classmethod
    def of(cls, letter: DeadLetter) -> LetterSummary:
        """The letter without its payload."""
        return cls(**_letter_fields(letter))


class LetterView(LetterSummary):
    """A dead letter with its payload, attempts and decisions."""

    attempt_history: list[AttemptView]
    payload_snapshot: Any = Field(description="The payload of the job.")
    decisions: list[DecisionView] = Field(description="Who reviewed, replayed or closed the letter, when and why.")

    @classmethod
    def whole(cls, letter: DeadLetter, payload: object) -> LetterView:
        """The letter with its payload, attempts and decisions."""
        return cls(
            attempt_history=[AttemptView.of(each) for each in letter.attempts],
            payload_snapshot=payload,
            decisions=[
                DecisionView(step=each.step, actor=each.actor, reason=each.reason, at=each.at)
                for each in letter.decisions
            ],
            **_letter_fields(letter),
        )


class LetterList(View):
    """A page of dead letters, oldest first."""

    items: list[LetterSummary]
    total: int = Field(description="How many letters match the filters.")
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class RefusedLetter(View):
    """A dead letter that cannot be replayed."""

    id: str
    message: str = Field(description="The reason.")


class ReplayView(View):
    """The result of a replay by filter. With `dryRun`, nothing was replayed."""

    dry_run: bool
    matched: int = Field(description="Letters that the filter matches.")
    replayed: list[str] = Field(description="Ids of the letters that moved (or would move).")
    skipped: list[str] = Field(description="Ids of matching letters that somebody else moved in the meantime.")
    refused: list[RefusedLetter] = Field(description="Matching letters that cannot be replayed.")


def _letter_fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "workload": letter.workload,
        "idempotency_key": letter.key,
        "job_id": letter.job_id,
        "event_id": letter.labels.get("eventId"),
        "event_type": letter.labels.get("eventType"),
        "generation": letter.generation,
        "terminal_reason_code": letter.reason_code,
        "terminal_reason_message": letter.reason_message,
        "attempt_count": letter.attempt_count,
        "review_status": letter.review_status,
        "created_at": letter.created_at,
        "updated_at": letter.updated_at,
        "expires_at": letter.expires_at,
        "replayed_as": letter.replayed_as,
    }


# --- health -------------------------------------------------------------------------------------------------------


class HealthView(View):
    """The process is running."""

    status: Literal["ok"] = "ok"
    version: str


class ReadinessView(View):
    """Whether requests can be accepted. Only the ledger counts: without the queue, jobs are accepted and wait."""

    ready: bool
    store: Literal["ok", "unavailable"]
    queue: Literal["ok", "unavailable"]
