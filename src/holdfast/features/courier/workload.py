"""The courier workload: applies events to shipments, and forwards them if a downstream is configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

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

from .adopting import adopt, identify, recover
from .contract import CourierEvent, fingerprint_of
from .portable import first_problem
from .timeliness import rejection

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

_BATCH: Final = 50
_MAX_UNREADABLE_BODY: Final = 2000


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
            message = "COURIER_DOWNSTREAM_TIMEOUT_MS must be more than 0 and less than HANDLER_TIMEOUT_MS."
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

    name: ClassVar[str] = "courier"
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

    def fingerprint(self, data: CourierEvent) -> str:
        """A hash of the content. Fields that differ between two requests with the same event do not count."""
        return fingerprint_of(data)

    def labels(self, data: CourierEvent) -> dict[str, str]:
        """The fields that an event is found by, the fields of its views, and those of a duplicate's receipt."""
        labels = {
            "eventId": data.eventId,
            "eventType": data.eventType,
            "source": data.source,
            "traceId": data.traceId,
            "shipmentId": data.payload.shipmentId,
            "orderId": data.payload.orderId,
            "status": data.payload.status,
            "occurredAt": isoformat(data.occurredAt),
        }
        if data.receivedAt is not None:
            labels["receivedAt"] = isoformat(data.receivedAt)
        return labels

    # --- events of external producers -------------------------------------------------------------------------

    def adopt(self, delivery: Delivery) -> Adopted[CourierEvent]:
        """See :mod:`.adopting`."""
        return adopt(delivery)

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

    async def handle_batch(self, jobs: Sequence[Job[CourierEvent]], context: Context) -> Sequence[Outcome]:
        """Used without a downstream. Nothing is awaited, so an event needs no task and no timer of its own."""
        del context
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Job[CourierEvent]) -> Outcome:
        """The outcome of the event here, without the downstream."""
        event = job.data
        rejected = rejection(event.occurredAt, job.received_at, self.retention, replayed=job.generation > 1)
        if rejected is not None:
            return rejected
        return Done(
            effects=[_applied(event, owned=self._owned)],
            result={"shipmentId": event.payload.shipmentId, "status": event.payload.status},
        )

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


async def _belongs_to_another(event: CourierEvent, context: Context) -> bool:
    shipment = await context.get(ACTIVE_SHIPMENTS, event.payload.shipmentId)
    return shipment is not None and shipment.get("source") not in {None, event.source}


def _applied(event: CourierEvent, *, owned: bool) -> Upsert:
    return Upsert(
        ACTIVE_SHIPMENTS,
        event.payload.shipmentId,
        set={
            "orderId": event.payload.orderId,
            "currentState": event.payload.status,
            "lastEventId": event.eventId,
            "lastEventType": event.eventType,
            "lastEventAt": isoformat(event.occurredAt),
            "metadata": event.payload.metadata,
            **({"source": event.source} if owned else {}),
        },
        only_if_newer="lastEventAt",
        only_if_same={"source": OTHER_SOURCE} if owned else {},
    )


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
