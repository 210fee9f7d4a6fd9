"""The answers of the API, made from records. Field names on the wire are those of the specification (camelCase)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.examples import add_example
from holdfast.contracts.ledger import Attempt, AttemptOutcome, LedgerEntry, Status
from holdfast.contracts.schedules import CatchUp
from holdfast.contracts.times import duration_ms, isoformat
from holdfast.contracts.tracing import REQUEST_ID, TRACE_ID
from holdfast.engine.schedules import ScheduleState

Instant = Annotated[
    datetime,
    PlainSerializer(isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class View(BaseModel):
    """The base of all answers with camelCase names."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, json_schema_extra=add_example
    )

    @classmethod
    def picked(cls, record: object, **changed: Any) -> Self:  # noqa: ANN401 - the values of fields
        """The view of a record: the fields of the same names, with these changes. A field that is absent is null.

        The names of a mapping are those of the wire; the names of an object are those of Python.
        """
        if isinstance(record, Mapping):
            values = {name: record.get(field.alias or name) for name, field in cls.model_fields.items()}
        else:
            values = {name: getattr(record, name, None) for name in cls.model_fields}
        return cls.model_validate(values | changed, from_attributes=True)

    def as_json(self) -> dict[str, Any]:
        """The answer as a JSON object, with the names of the wire."""
        return self.model_dump(mode="json", by_alias=True)


# --- errors and acknowledgements ----------------------------------------------------------------------------------


class Problem(View):
    """One problem of a request."""

    field: str = Field(description="The field, as a path into the body.", examples=["customer.name"])
    problem: str = Field(description="What is wrong. The value is never shown.", examples=["is required"])


class ErrorView(View):
    """Why a request was refused. Nothing was accepted."""

    acknowledged: Literal[False]
    error_code: str = Field(
        description="The cause, for programs. Each route lists its causes.", examples=["INVALID_PAYLOAD"]
    )
    message: str = Field(description="A sentence for a person.", examples=["The body does not fulfil its contract."])
    trace_id: str = Field(description="Quote it when you ask for help.", examples=["req_a1b2c3"])
    details: list[Problem] | None = Field(default=None, description="Present if single fields are wrong.")


class JobReceipt(View):
    """The job is recorded and will be processed. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    workload: str = Field(examples=["invoices"])
    key: str = Field(examples=["invoice-7"])
    job_id: str = Field(examples=["invoice-7"])
    queued: bool = Field(examples=[True])
    duplicate: bool
    received_at: Instant
    due_at: Instant | None = Field(
        default=None, description="When its delay is over; null: without a delay.", examples=[None]
    )
    trace_id: str | None = Field(
        default=None,
        description="The trace id of your `traceparent`, or a new one. The job keeps it.",
        examples=["4bf92f3577b34da6a3ce929d0e0e4736"],
    )


Receipt = TypeVar("Receipt", bound=View)


class BatchAnswer(View, Generic[Receipt]):
    """The answer for one item of a batch."""

    index: int = Field(description="The position in the request, from 0.", examples=[0])
    status_code: int = Field(description="The HTTP status that the item would get alone.", examples=[202])
    answer: Receipt | ErrorView = Field(description="The body that the item would get alone.")


class BatchView(View, Generic[Receipt]):
    """One answer for each item, in the order of the request."""

    accepted: int
    refused: int = Field(examples=[0])
    answers: list[BatchAnswer[Receipt]]


class JobBatch(BatchView[JobReceipt]):
    """One answer for each job, in the order of the request."""


# --- ledger entries -----------------------------------------------------------------------------------------------


class AttemptView(View):
    """One attempt of a job."""

    attempt: int
    outcome: AttemptOutcome = Field(examples=["failed"])
    worker: str = Field(examples=["worker-1"])
    started_at: Instant
    finished_at: Instant | None = Field(examples=["2026-02-26T12:00:11.130Z"])
    error_code: str | None = Field(examples=["TIMEOUT"])
    error_message: str | None = Field(examples=["The downstream did not answer in time."])
    traceback: str | None = Field(
        default=None,
        description="Where the error was raised. For operators: the API key of a tenant does not show code.",
        examples=[None],
    )


class EntryView(View):
    """The fields of every ledger entry. ``attemptCount`` is always the length of ``attemptHistory`` (I5)."""

    status: Status = Field(examples=["failed"])
    generation: int = Field(description="1 for the first run; each replay adds 1.")
    attempt_count: int
    attempt_history: list[AttemptView]
    last_error_code: str | None = Field(examples=["TIMEOUT"])
    last_error_message: str | None = Field(examples=["The downstream did not answer in time."])
    first_seen_at: Instant
    updated_at: Instant
    expires_at: Instant | None = Field(description="When the record is deleted; null while the job is open.")
    next_attempt_at: Instant | None = Field(
        description="Earliest time of the next attempt of a failed job.", examples=["2026-02-26T12:00:12.250Z"]
    )
    note: str | None = Field(description="For example `ignored_stale`: a newer event had been applied already.")
    warnings: list[str] = Field(description="Problems of a job that an external producer put into the queue.")

    @classmethod
    def picked(cls, record: object, **changed: Any) -> Self:  # noqa: ANN401 - the values of fields
        """The view of an entry of the ledger, with these changes."""
        if isinstance(record, LedgerEntry):
            changed["attempt_history"] = record.attempts
            changed["next_attempt_at"] = record.not_before if record.status is Status.FAILED else None
        return super().picked(record, **changed)


_WAITS: Final = frozenset({Status.RECEIVED, Status.FAILED})


def due_at(entry: LedgerEntry) -> datetime | None:
    """When a job that waits may start; None for other jobs."""
    return entry.not_before if entry.status in _WAITS else None


class JobProgress(View):
    """How far a job is, as its handler says."""

    done: int | float = Field(examples=[40])
    total: int | float | None = Field(examples=[100])
    note: str | None = Field(examples=["page 40 of 100"])
    at: Instant


class JobSummary(View):
    """A job in a list."""

    workload: str = Field(examples=["invoices"])
    key: str = Field(examples=["invoice-7"])
    job_id: str = Field(examples=["invoice-7"])
    status: Status = Field(examples=["failed"])
    generation: int = Field(description="1 for the first run; each replay adds 1.")
    attempt_count: int
    labels: dict[str, str]
    last_error_code: str | None = Field(examples=["TIMEOUT"])
    last_error_message: str | None = Field(examples=["The downstream did not answer in time."])
    note: str | None = Field(examples=[None])
    first_seen_at: Instant
    updated_at: Instant
    due_at: Instant | None = Field(
        description="When a job that waits may start.", examples=["2026-02-26T12:00:12.250Z"]
    )
    progress: JobProgress | None = Field(description="How far the job is, if its handler says so.")
    trace_id: str | None = Field(examples=["4bf92f3577b34da6a3ce929d0e0e4736"])

    @classmethod
    def of(cls, entry: LedgerEntry, key: str) -> Self:
        """The view of an entry for a caller who knows the job by this key."""
        return cls.picked(entry, key=key, due_at=due_at(entry), trace_id=entry.labels.get(TRACE_ID))


class JobList(View):
    """A page of jobs, newest first."""

    items: list[JobSummary]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class JobEvent(JobSummary):
    """The state of a job in a stream."""

    result: dict[str, Any] | None = Field(description="What its handler returned, once the job is processed.")


class JobView(EntryView):
    """The state and the attempts of one job."""

    workload: str = Field(examples=["invoices"])
    key: str = Field(examples=["invoice-7"])
    job_id: str = Field(examples=["invoice-7"])
    labels: dict[str, str]
    priority: int
    deadline: Instant | None
    due_at: Instant | None = Field(
        description="When a job that waits may start.", examples=["2026-02-26T12:00:12.250Z"]
    )
    progress: JobProgress | None = Field(description="How far the job is, if its handler says so.")
    result: dict[str, Any] | None
    payload: Any = Field(description="The job, as its workload shows it to people.", examples=[{"number": "invoice-7"}])
    dead_letters: list[str] = Field(
        description="The ids of its dead letters, newest last.", examples=[["dl_5f0c7a1e9b3d4c2a8e6f"]]
    )
    replay_of: str | None
    trace_id: str | None = Field(examples=["4bf92f3577b34da6a3ce929d0e0e4736"])
    request_id: str | None = Field(examples=["req_a1b2c3"])

    @classmethod
    def of(
        cls, entry: LedgerEntry, key: str, *, payload: object, dead_letters: Sequence[str], tracebacks: bool
    ) -> Self:
        """The view of an entry for a caller who knows the job by this key."""
        shown = entry if tracebacks else replace(entry, attempts=tuple(map(_without_traceback, entry.attempts)))
        return cls.picked(
            shown,
            key=key,
            due_at=due_at(entry),
            payload=payload,
            dead_letters=list(dead_letters),
            trace_id=entry.labels.get(TRACE_ID),
            request_id=entry.labels.get(REQUEST_ID),
        )


def _without_traceback(attempt: Attempt) -> Attempt:
    return replace(attempt, traceback=None)


class JobCancel(View):
    """What became of a cancellation."""

    workload: str = Field(examples=["invoices"])
    key: str = Field(examples=["invoice-7"])
    state: Literal["cancelled", "stopping"] = Field(
        description="`cancelled`: the job will not run. `stopping`: it is in work, was asked to stop, and will not run "
        "again.",
    )


class WorkloadView(View):
    """A workload of this installation."""

    name: str = Field(examples=["invoices"])
    queue: str = Field(examples=["invoices-main"])
    contract: dict[str, Any] = Field(description="The JSON Schema of its jobs.", examples=[{"type": "object"}])
    indexed_labels: list[str] = Field(description="The labels by which its jobs are found.", examples=[["customer"]])
    own_route: str | None = Field(description="How its jobs are submitted, if not by `POST /v1/jobs`.", examples=[None])


class WorkloadList(View):
    """The workloads that the caller may use."""

    items: list[WorkloadView]


class RecordList(View):
    """A page of records, in the order of their keys."""

    items: list[dict[str, Any]] = Field(examples=[[{"number": "2026-001", "customer": "ACME"}]])
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


# --- dead letters -------------------------------------------------------------------------------------------------


class DecisionView(View):
    """One decision of a person about a dead letter."""

    step: ReviewStatus = Field(examples=["reviewed"])
    actor: str = Field(examples=["ana"])
    reason: str = Field(examples=["The downstream was down for maintenance; it is back."])
    at: Instant


class LetterSummary(View):
    """A dead letter in a list."""

    id: str = Field(examples=["dl_5f0c7a1e9b3d4c2a8e6f"])
    workload: str = Field(examples=["courier"])
    idempotency_key: str = Field(examples=["courier-x:evt_123"])
    job_id: str = Field(examples=["courier-x.evt_123"])
    event_id: str | None = Field(description="Only for courier events.", examples=["evt_123"])
    event_type: str | None = Field(description="Only for courier events.", examples=["shipment.status.updated"])
    generation: int
    terminal_reason_code: str = Field(examples=["DOWNSTREAM_TIMEOUT_EXHAUSTED"])
    terminal_reason_message: str = Field(examples=["Retries exhausted after transient timeouts"])
    attempt_count: int
    review_status: ReviewStatus = Field(examples=["reviewed"])
    created_at: Instant
    updated_at: Instant
    expires_at: Instant = Field(examples=["2026-05-27T12:05:00.000Z"])
    replayed_as: str | None = Field(description="The job id of the replay, if the replay is a new job.")

    @classmethod
    def of(cls, letter: ListedLetter, **more: Any) -> Self:  # noqa: ANN401 - the values of fields
        """The view of a dead letter."""
        return cls.picked(
            letter,
            idempotency_key=letter.key,
            event_id=letter.labels.get("eventId"),
            event_type=letter.labels.get("eventType"),
            terminal_reason_code=letter.reason_code,
            terminal_reason_message=letter.reason_message,
            **more,
        )


class LetterView(LetterSummary):
    """A dead letter with its payload, attempts and decisions."""

    attempt_history: list[AttemptView]
    payload_snapshot: Any = Field(
        description="The payload of the job.",
        examples=[{"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"}],
    )
    decisions: list[DecisionView] = Field(description="Who reviewed, replayed or closed the letter, when and why.")

    @classmethod
    def whole(cls, letter: DeadLetter, payload: object) -> LetterView:
        """The letter with its payload, attempts and decisions."""
        return cls.of(letter, attempt_history=letter.attempts, payload_snapshot=payload)


class LetterList(View):
    """A page of dead letters, oldest first."""

    items: list[LetterSummary]
    total: int = Field(description="How many letters match the filters.")
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class RefusedLetter(View):
    """A dead letter that cannot be replayed."""

    id: str = Field(examples=["dl_0123456789abcdef0123"])
    message: str = Field(description="The reason.", examples=["The workload of this letter is not known here."])


class ReplayView(View):
    """The result of a replay by filter. With `dryRun`, nothing was replayed."""

    dry_run: bool
    matched: int = Field(description="Letters that the filter matches.")
    replayed: list[str] = Field(
        description="Ids of the letters that moved (or would move).", examples=[["dl_5f0c7a1e9b3d4c2a8e6f"]]
    )
    skipped: list[str] = Field(description="Ids of matching letters that somebody else moved in the meantime.")
    refused: list[RefusedLetter] = Field(description="Matching letters that cannot be replayed.", examples=[[]])


# --- schedules ----------------------------------------------------------------------------------------------------


class ScheduleView(View):
    """A schedule: when it ticks, its last tick and the next ones, and whether it is paused."""

    name: str = Field(examples=["remind"])
    workload: str = Field(examples=["remind"])
    cron: str | None = Field(description="Null for a schedule with an interval.", examples=["0 7 * * 1-5"])
    every_ms: int | None = Field(description="Null for a schedule with a cron expression.", examples=[None])
    timezone: str = Field(examples=["America/Sao_Paulo"])
    catch_up: CatchUp = Field(description="What happens to missed ticks.", examples=["last"])
    jitter_ms: int = Field(examples=[0])
    next: list[Instant] = Field(
        description="The next instants. A paused schedule submits nothing at them.",
        examples=[["2026-03-02T10:00:00.000Z"]],
    )
    next_local: list[str] = Field(
        description="The same instants on the clocks of its time zone.", examples=[["2026-03-02T07:00:00-03:00"]]
    )
    last_tick: Instant | None = Field(examples=["2026-02-27T10:00:00.000Z"])
    last_key: str | None = Field(
        description="The key of the last tick's job.", examples=["schedule:remind:2026-02-27T10:00:00.000Z"]
    )
    last_status: Status | None = Field(
        description="The state of that job; null if the ledger keeps it no longer.", examples=["processed"]
    )
    last_run: Instant | None = Field(description="When a person last ran it.", examples=["2026-02-27T15:04:05.678Z"])
    paused: bool = Field(examples=[False])
    paused_by: str | None = Field(examples=[None])
    reason: str | None = Field(description="Why it is paused.", examples=[None])
    paused_at: Instant | None = Field(examples=[None])

    @classmethod
    def of(cls, state: ScheduleState) -> Self:
        """The view of a schedule."""
        schedule = state.schedule
        return cls.picked(
            state,
            name=schedule.name,
            cron=schedule.cron,
            every_ms=None if schedule.every is None else duration_ms(schedule.every),
            timezone=schedule.timezone,
            catch_up=schedule.catch_up,
            jitter_ms=duration_ms(schedule.jitter),
            next_local=[each.astimezone(schedule.zone).isoformat() for each in state.next],
            last_status=state.status,
        )


class ScheduleList(View):
    """All schedules, by name."""

    items: list[ScheduleView]
    next: None = Field(default=None, description="Always null: the list is whole.")


# --- health -------------------------------------------------------------------------------------------------------


class HealthView(View):
    """The process is running."""

    status: Literal["ok"] = "ok"
    version: str = Field(examples=["1.2.3"])


class ReadinessView(View):
    """Whether requests can be accepted. Only the ledger counts: without the queue, jobs are accepted and wait."""

    ready: bool = Field(examples=[True])
    store: Literal["ok", "unavailable"]
    queue: Literal["ok", "unavailable"]
