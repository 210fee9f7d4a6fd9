"""The courier workload: applies events to shipments, and forwards them if a downstream is configured."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from holdfast import (
    Adopted,
    Collection,
    ConfigurationError,
    Context,
    DeadLetter,
    Delivery,
    Done,
    ExponentialBackoff,
    Failure,
    Identity,
    Job,
    Outcome,
    Reason,
    Reject,
    RetryPolicy,
    Upsert,
    Workload,
    isoformat,
    readable_body,
    scrub,
)
from holdfast.network import NETWORK, REFUSED, RESET, THROTTLED, TIMEOUT, TLS_FAILED, UNKNOWN_HOST

from .adopting import identify, read_event, recover
from .contract import CourierEvent, ShipmentFacts, first_problem

if TYPE_CHECKING:
    from .downstream import Downstream

ACTIVE_SHIPMENTS: Final = "active_shipments"
OTHER_SOURCE: Final = "SHIPMENT_OF_ANOTHER_SOURCE"

_FAILURE_NAMES: Final[Mapping[str, str]] = {
    TIMEOUT: "timeouts",
    THROTTLED: "throttling",
    REFUSED: "connection refusals",
    RESET: "connection resets",
    UNKNOWN_HOST: "name resolution failures",
    TLS_FAILED: "TLS failures",
    NETWORK: "network failures",
}

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

_BATCH: Final = 50
_MAX_UNREADABLE_BODY: Final = 2000

MARGIN: Final = timedelta(hours=1)
"""How far the clocks of couriers, gateways and stores may differ without an event being accepted and then rejected."""

FUTURE: Final = timedelta(minutes=5)
"""How far a courier's clock may be ahead of ours at intake."""


@dataclass(frozen=True, slots=True)
class CourierOptions:
    """The settings of an operator. The defaults are those of the specification (C27, C41, C68).

    Without ``downstream_url`` nothing is forwarded. ``concurrency`` is how many events a worker handles at once.
    """

    retry: RetryPolicy = field(default_factory=ExponentialBackoff)
    timeout: timedelta = timedelta(seconds=30)
    retention: timedelta = Workload.retention
    letter_retention: timedelta = Workload.letter_retention
    downstream_url: str | None = field(default=None, repr=False)  # may hold credentials
    downstream_secret: str | None = field(default=None, repr=False)
    downstream_timeout: timedelta = timedelta(seconds=5)
    concurrency: int = 100
    owned: bool = False
    """Whether a shipment belongs to the source of its first event, so that events of other sources are refused."""

    def __post_init__(self) -> None:
        if min(self.retention, self.letter_retention) < timedelta(days=1):
            message = "Events and dead letters must be kept for at least one day."
            raise ConfigurationError(message)
        if self.downstream_url is not None and not timedelta(0) < self.downstream_timeout < self.timeout:
            # Otherwise the engine would stop the handler before the downstream has answered.
            message = "The timeout of the downstream must be more than 0 and less than that of an attempt."
            raise ConfigurationError(message)

    def downstream(self) -> Downstream | None:
        """The client for the configured downstream, if there is one."""
        if self.downstream_url is None:
            return None
        from .downstream import Downstream  # noqa: PLC0415 - load an HTTP client only if it is needed

        return Downstream(
            self.downstream_url, self.downstream_secret or "", self.downstream_timeout, connections=self.concurrency
        )


class Courier(Workload[CourierEvent]):
    """Courier events. One idempotency key: one entry, one effect (C32, C51)."""

    name = "courier"
    contract = CourierEvent
    queue = "courier-events-main"
    dead_letter_queue = "courier-events-dlq"
    job_name = "courier-event"
    ledger_name = "processed_events"
    letters_name = "dead_letter_events"
    collections: Sequence[Collection] = (
        Collection(
            ACTIVE_SHIPMENTS,
            key="shipmentId",
            indexes=(("orderId",), ("currentState", "updatedAt")),
            instants=("lastEventAt",),
            columns=("lastEventId", "lastEventType", "metadata"),
        ),
    )
    indexed_labels: Sequence[str] = ("shipmentId",)
    label_columns: Sequence[str] = ("eventId", "eventType", "traceId", "shipmentId")

    def __init__(self, options: CourierOptions | None = None) -> None:
        options = options or CourierOptions()
        self.retry = options.retry
        self.timeout = options.timeout
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        self._owned = options.owned
        self._downstream = options.downstream()
        self.batch_size = _BATCH if self._downstream is None else None

    # --- the job's identity -----------------------------------------------------------------------------------

    def key(self, data: CourierEvent) -> str:
        """The idempotency key (C32)."""
        return data.idempotencyKey

    def fingerprint(self, data: CourierEvent, *, left_out: Container[str] = ()) -> str:
        """A hash of the content. Fields that differ between two requests with the same event do not count.

        ``left_out``: fields that an external producer did not give, and that were filled in.
        """
        filled_in = {name: None for name in ("source", "occurredAt") if name in left_out}
        return fingerprint_of(_names_of(data) | filled_in)

    def labels(self, data: CourierEvent) -> dict[str, str]:
        """The fields that an event is found by, the fields of its views, and those of a duplicate's receipt."""
        return labels_of(_names_of(data))

    # --- events of external producers -------------------------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[CourierEvent]:
        """See :mod:`.adopting`."""
        event, warnings, left_out = read_event(delivery)
        # The filled-in values may differ when the same event comes again, so the fingerprint leaves them out.
        return Adopted(event, warnings, self.fingerprint(event, left_out=left_out))

    def identify(self, content: Mapping[str, Any]) -> Identity:
        """The names of an event that breaks the contract, as far as they can be read."""
        return identify(content)

    def recover(self, letter: Mapping[str, Any], seen_at: datetime) -> str:
        """The event of another system's dead letter."""
        return recover(letter, seen_at)

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the downstream's connection pool."""
        if self._downstream is not None:
            await self._downstream.open()

    async def stop(self) -> None:
        """Close the downstream's connection pool."""
        if self._downstream is not None:
            await self._downstream.close()

    async def handle(self, job: Job[CourierEvent], context: Context) -> Outcome:
        """Forward the event, then apply it to its shipment.

        The order matters: a shipment shows only events that the downstream has accepted. The effect decides whether the
        event is the newest of its shipment, in the transaction that commits it (I16). The downstream gets every event.
        """
        outcome = self._outcome(job)
        if self._downstream is None or not isinstance(outcome, Done):
            return outcome
        if self._owned and await _belongs_to_another(job.data, context):
            # The commit would refuse it too, but the downstream must not get the event either.
            return Reject(OTHER_SOURCE, "The shipment belongs to another source.")
        answer = await self._downstream.forward(job.data)
        return outcome if isinstance(answer, Done) else answer

    async def handle_batch(self, jobs: Sequence[Job[CourierEvent]], contexts: Sequence[Context]) -> Sequence[Outcome]:
        """Used without a downstream. Nothing is awaited, so an event needs no task and no timer of its own."""
        del contexts
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Job[CourierEvent]) -> Outcome:
        """The outcome of the event here, without the downstream."""
        event = job.data
        rejected = rejection(event.occurredAt, job.received_at, self.retention, replayed=job.generation > 1)
        if rejected is not None:
            return rejected
        shipment = event.payload
        applied = Upsert(
            ACTIVE_SHIPMENTS,
            shipment.shipmentId,
            set={
                "orderId": shipment.orderId,
                "currentState": shipment.status,
                "lastEventId": event.eventId,
                "lastEventType": event.eventType,
                "lastEventAt": isoformat(event.occurredAt),
                "metadata": dict(shipment.model_extra or {}),
                **({"source": event.source} if self._owned else {}),
            },
            only_if_newer="lastEventAt",
            only_if_same={"source": OTHER_SOURCE} if self._owned else {},
        )
        return Done([applied], result={"shipmentId": shipment.shipmentId, "status": shipment.status})

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """``DOWNSTREAM_TIMEOUT_EXHAUSTED`` (C56) and similar codes, if the downstream failed."""
        failures = _FAILURE_NAMES.get(failure.code)
        if failure.code.startswith("HTTP_"):
            failures = f"{failure.code.replace('_', ' ')} answers"
        if self._downstream is None or failures is None:
            return super().exhausted(failure, attempts)
        return Reason(f"DOWNSTREAM_{failure.code}_EXHAUSTED", f"Retries exhausted after transient {failures}")

    # --- the wire ---------------------------------------------------------------------------------------------

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """The payload of the dead-letter queue (:class:`CourierDeadLetter`), for every letter.

        It is not validated: the letter of a job that broke its contract must reach the queue too.
        """
        body = readable_body(letter.body)
        return {
            "eventId": _field(letter, body, "eventId", otherwise=letter.key),
            "idempotencyKey": _field(letter, body, "idempotencyKey", otherwise=letter.key),
            "traceId": _field(letter, body, "traceId", otherwise=letter.id),
            "attemptCount": letter.attempt_count,
            "terminalReasonCode": letter.reason_code,
            "terminalReasonMessage": letter.reason_message,
            "attemptHistory": [
                {
                    "attempt": each.attempt,
                    "outcome": each.outcome.value,
                    "errorCode": each.error_code or each.outcome.value.upper(),
                }
                for each in letter.attempts
            ],
            "payloadSnapshot": _snapshot(letter.body, body),
            "deadLetteredAt": isoformat(letter.created_at),
        }


# --- the identity of an event, of which the intake makes an entry without a model of the event ---------------------


def facts_of(payload: ShipmentFacts) -> dict[str, Any]:
    """The payload as JSON has it: the three identifiers first."""
    return {**payload.__dict__, **(payload.model_extra or {})}


def fingerprint_of(event: Mapping[str, Any]) -> str:
    """See :meth:`Courier.fingerprint`. ``event`` is the event as JSON has it."""
    content = [event["source"], event["eventId"], event["eventType"], event["occurredAt"], event["payload"]]
    return sha256(_canonical(content).encode()).hexdigest()


def labels_of(event: Mapping[str, Any]) -> dict[str, str]:
    """See :meth:`Courier.labels`. ``event`` is the event as JSON has it."""
    payload = event["payload"]
    labels = {
        "eventId": event["eventId"],
        "eventType": event["eventType"],
        "source": event["source"],
        "traceId": event["traceId"],
        "shipmentId": payload["shipmentId"],
        "orderId": payload["orderId"],
        "status": payload["status"],
        "occurredAt": event["occurredAt"],
    }
    if event["receivedAt"] is not None:
        labels["receivedAt"] = event["receivedAt"]
    return labels


def _names_of(data: CourierEvent) -> dict[str, Any]:
    return {
        "source": data.source,
        "eventId": data.eventId,
        "eventType": data.eventType,
        "traceId": data.traceId,
        "occurredAt": isoformat(data.occurredAt),
        "payload": facts_of(data.payload),
        "receivedAt": None if data.receivedAt is None else isoformat(data.receivedAt),
    }


async def _belongs_to_another(event: CourierEvent, context: Context) -> bool:
    shipment = await context.get(ACTIVE_SHIPMENTS, event.payload.shipmentId)
    return shipment is not None and shipment.get("source") not in {None, event.source}


# --- events that are too old or too new ---------------------------------------------------------------------------
#
# Too old: the ledger deletes settled entries after the retention. An older event could be a duplicate of a deleted
# entry (I12). Too new: the newest event of a shipment wins. After an event from the far future, no later event could
# change the shipment (I16).


def problem_at_intake(occurred_at: datetime, received_at: datetime, retention: timedelta) -> str | None:
    """The reason to refuse an event at intake, by the clock of the process that receives it; None: accepted."""
    if occurred_at > received_at + FUTURE:
        return "must not be in the future"
    if occurred_at < received_at - (retention - MARGIN):
        return f"must not be older than {retention.days} days: whether it is a duplicate is no longer known"
    return None


def rejection(occurred_at: datetime, first_seen_at: datetime, retention: timedelta, *, replayed: bool) -> Reject | None:
    """The same rules for jobs that an external producer put into the queue, by the clock of the ledger.

    The limits are wider by the margin, so that an event that passed the intake is never rejected here. A replay is a
    person's decision about a job that is still in the ledger, so its age does not matter.
    """
    if occurred_at > first_seen_at + FUTURE + MARGIN:
        return Reject("EVENT_IN_THE_FUTURE", "occurredAt is in the future.")
    if occurred_at < first_seen_at - retention and not replayed:
        return Reject("EVENT_TOO_OLD", "occurredAt is older than the time for which duplicates are known.")
    return None


# --- the fields of a dead letter ----------------------------------------------------------------------------------


def _field(letter: DeadLetter, body: object, field_name: str, *, otherwise: str) -> str:
    """A field of the event: from the labels of the letter, or from the unvalidated body, or ``otherwise``."""
    if label := letter.labels.get(field_name):
        return label
    value = body.get(field_name) if isinstance(body, dict) else None
    return value if isinstance(value, str) and value and first_problem({"value": value}) is None else otherwise


def _snapshot(text: str, body: object) -> Mapping[str, Any]:
    """The payload of the event; without a payload, the whole body; for a body that is not portable JSON, its text."""
    if isinstance(body, dict) and first_problem(body) is None:
        payload = body.get("payload")
        return payload if isinstance(payload, dict) else body
    return {"unreadable": scrub(text[:_MAX_UNREADABLE_BODY])}
