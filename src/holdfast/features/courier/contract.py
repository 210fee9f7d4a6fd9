"""The courier contracts: the body of a request, the job in the queue, the dead letter, and the shipment record.

Field names are those of the wire, as the specification writes them (C6, C47, C54).
"""
# ruff: noqa: N815 - the attributes are the fields of the wire, and the wire is written in camelCase

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holdfast import described, isoformat

from .portable import first_problem

NOT_PORTABLE: Final = "not_portable"
"""The type of the validation error for content that a store or a queue could not keep."""

IDENTIFIER_RULE: Final = "must be 1 to 200 visible ASCII characters, without spaces"
IDENTIFIER_PATTERN: Final = described(r"^[!-~]{1,200}$", IDENTIFIER_RULE)
TEXT_PATTERN: Final = described(
    r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
    "must not be blank and must not contain control characters",
)
PRINTABLE_PATTERN: Final = described(r"^[ -~]+$", "must be printable ASCII characters")

# RFC 3339 with an offset. Only years that a 24-character instant and every store can hold.
_INSTANT = re.compile(
    r"(?:19[7-9][0-9]|2[0-9]{3})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
)


def _instant(value: object) -> datetime:
    """Read an instant and cut it to the millisecond: the wire, the effects and MongoDB's dates keep no more."""
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:  # the 31st of February
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        kind, sentence = "instant", "must be an ISO-8601 instant with a time zone, such as 2026-02-26T12:00:00Z"
        raise PydanticCustomError(kind, sentence)
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    beyond = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - beyond) if beyond else value


Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER_PATTERN)]
"""Names in headers and job ids: visible ASCII, no spaces."""

Text = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, min_length=1, max_length=200)]
"""Names for people: any script, not blank, no control characters."""

EventType = Annotated[str, StringConstraints(pattern=TEXT_PATTERN, min_length=1, max_length=100)]

Instant = Annotated[
    datetime,
    PlainValidator(_instant),
    PlainSerializer(isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class _Open(BaseModel):
    """An object that may have unknown fields. They are kept if every store and queue can keep them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="after")
    def _is_portable(self) -> Self:
        if self.__pydantic_extra__ and (problem := first_problem(self.__pydantic_extra__)) is not None:
            path, sentence = problem
            raise PydanticCustomError(NOT_PORTABLE, "{problem}", {"problem": sentence, "path": path})
        return self


class ShipmentFacts(_Open):
    """The shipment and its new state. The three identifiers are required; other fields of the courier are kept."""

    shipmentId: Text
    orderId: Text
    status: Text


class CourierSignature(_Open):
    """The signature of the event at intake."""

    algorithm: Annotated[str, StringConstraints(pattern=PRINTABLE_PATTERN, max_length=100)]
    timestamp: Annotated[int, Field(strict=True, ge=0, description="Unix seconds")]
    signature: Annotated[str, StringConstraints(pattern=PRINTABLE_PATTERN, max_length=4000)]


_INTAKE_EXAMPLE: Final[dict[str, Any]] = {
    "eventId": "evt_123",
    "eventType": "shipment.status.updated",
    "occurredAt": "2026-02-26T12:00:00Z",
    "source": "courier-x",
    "idempotencyKey": "courier-x:evt_123",
    "payload": {"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"},
}
_PAYLOAD_EXAMPLE: Final[dict[str, Any]] = _INTAKE_EXAMPLE["payload"]


_FilledByUs = Annotated[
    Any,
    Field(description="The gateway fills this field. It may be sent, but the sent value is not used."),
]


class CourierIntake(BaseModel):
    """The body of ``POST /v1/events/courier``. Other data of the courier goes into ``payload``.

    A courier may send the whole event of the specification. The gateway fills the four fields of its transport.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [_INTAKE_EXAMPLE]})

    eventId: Identifier
    eventType: EventType
    occurredAt: Instant
    source: Identifier
    idempotencyKey: Annotated[
        Identifier | None,
        Field(description="Two events with the same key are duplicates. Default: <source>:<eventId>."),
    ] = None
    payload: ShipmentFacts
    traceId: _FilledByUs = None
    signatureMeta: _FilledByUs = None
    receivedAt: _FilledByUs = None
    attempt: _FilledByUs = None


class CourierEvent(_Open):
    """One job of ``courier-events-main``.

    Our intake fills every field. An external producer needs to give only the five fields of rule C7. Then
    :mod:`.adopting` fills in ``occurredAt``, so that a late event does not undo a newer one (I16), and ``source``, so
    that the event has an owner. ``signatureMeta`` is kept in any shape.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **_INTAKE_EXAMPLE,
                    "traceId": "req_a1b2c3",
                    "signatureMeta": {
                        "algorithm": "hmac-sha256",
                        "timestamp": 1772107200,
                        "signature": "hex-or-base64",
                    },
                    "receivedAt": "2026-02-26T12:00:01Z",
                    "attempt": 1,
                },
            ],
        },
    )

    eventId: Identifier
    eventType: EventType
    occurredAt: Instant
    source: Identifier
    idempotencyKey: Identifier
    traceId: Identifier
    signatureMeta: Annotated[Any, Field(exclude_if=lambda value: value is None)] = None
    payload: ShipmentFacts
    receivedAt: Annotated[Instant | None, Field(exclude_if=lambda value: value is None)] = None
    attempt: Annotated[int, Field(strict=True, ge=1)] = 1


class AttemptSummary(BaseModel):
    """One failed attempt, as the dead-letter queue shows it (C57)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempt: Annotated[int, Field(ge=1)]
    outcome: Literal["failed", "lost"]
    errorCode: Annotated[str, StringConstraints(min_length=1)]


class CourierDeadLetter(BaseModel):
    """One job of ``courier-events-dlq`` (C54): the event, the reason of the failure, and the attempts.

    The identifiers may be any text: a job that broke the contract gets a dead letter too.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "eventId": "evt_123",
                    "idempotencyKey": "courier-x:evt_123",
                    "traceId": "req_a1b2c3",
                    "attemptCount": 1,
                    "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
                    "terminalReasonMessage": "Retries exhausted after transient timeouts",
                    "attemptHistory": [{"attempt": 1, "outcome": "failed", "errorCode": "TIMEOUT"}],
                    "payloadSnapshot": _PAYLOAD_EXAMPLE,
                    "deadLetteredAt": "2026-02-26T12:05:00Z",
                },
            ],
        },
    )

    eventId: Annotated[str, StringConstraints(min_length=1)]
    idempotencyKey: Annotated[str, StringConstraints(min_length=1)]
    traceId: Annotated[str, StringConstraints(min_length=1)]
    attemptCount: Annotated[int, Field(ge=0)]
    terminalReasonCode: Annotated[str, StringConstraints(min_length=1)]
    terminalReasonMessage: str
    attemptHistory: list[AttemptSummary]
    payloadSnapshot: dict[str, Any]
    deadLetteredAt: Instant

    @model_validator(mode="after")
    def _counts_its_attempts(self) -> Self:
        numbers = [each.attempt for each in self.attemptHistory]
        if numbers != list(range(1, self.attemptCount + 1)):
            kind, sentence = (
                "attempt_count",
                "attemptHistory must hold the attempts 1 to attemptCount, each once, in order",
            )
            raise PydanticCustomError(kind, sentence)
        return self


class ActiveShipment(BaseModel):
    """One record of ``active_shipments`` (C47). ``createdAt`` and ``updatedAt`` come from the store's clock."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shipmentId: Text
    orderId: Text
    currentState: Text
    lastEventId: Identifier
    lastEventType: EventType
    lastEventAt: Instant
    metadata: dict[str, Any]
    source: Text | None = Field(default=None, description="The owner, with COURIER_SHIPMENT_OWNER=source.")
    createdAt: Instant
    updatedAt: Instant
