"""The courier contracts: the body of a request, the job in the queue, the dead letter, and the shipment record.

Field names are those of the wire, as the specification writes them (C6, C47, C54).

Every queue and every store must be able to keep each value unchanged. Python accepts more than JSON: it reads ``NaN``,
half characters (lone surrogates) and integers of any size. Each of these would fail later or change silently, in a
queue or in a store. So the contract refuses them at intake, where the sender still gets an answer.
"""

from __future__ import annotations

import math

# ruff: noqa: N815 - the attributes are the fields of the wire, and the wire is written in camelCase
import re
from collections.abc import Mapping
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
from pydantic_core import PydanticCustomError, to_json

from holdfast import described, isoformat

MAX_DEPTH: Final = 64
"""Levels of nested objects and lists. MongoDB allows 100, with the fields around the payload."""

MAX_INTEGER: Final = 2**63 - 1

Path = tuple[str | int, ...]

_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def first_problem(content: Mapping[str, Any]) -> tuple[Path, str] | None:
    """The path of a value that is not portable, and the reason; None if all values are portable.

    The hot path is one pass of pydantic's encoder. The values are searched one by one only if this pass fails, or if
    its output may contain a number, a field name or a depth that is not portable.
    """
    try:
        text = to_json(content, inf_nan_mode="constants")
    except ValueError:  # a lone surrogate, or a cycle
        return _search(content) or ((), "must be JSON")
    suspicious = b"NaN" in text or b"Infinity" in text or b"\\u0000" in text or _LONG_NUMBER.search(text) is not None
    # The depth is at most the number of brackets.
    nested = text.count(b"{") + text.count(b"[") > MAX_DEPTH and _depth(content) > MAX_DEPTH
    return _search(content) if suspicious or nested else None


def _depth(content: Mapping[str, Any]) -> int:
    depth = 0
    layer: list[Mapping[str, Any] | list[Any]] = [content]
    while layer:
        depth += 1
        children = (child for each in layer for child in (each if isinstance(each, list) else each.values()))
        layer = [child for child in children if isinstance(child, dict | list)]
    return depth


def _search(content: Mapping[str, Any]) -> tuple[Path, str] | None:
    waiting: list[tuple[Path, Any]] = [((), content)]
    while waiting:
        path, value = waiting.pop()
        problem = _problem_of(value, depth=len(path) + 1)
        if problem is not None:
            return path, problem
        if isinstance(value, Mapping):
            waiting += [((*path, key), child) for key, child in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [((*path, position), child) for position, child in enumerate(value)]
    return None


def _problem_of(value: object, *, depth: int) -> str | None:  # noqa: PLR0911 - one line for each kind of value
    match value:
        case None | bool():
            return None
        case str():
            return None if _encodable(value) else "must not contain half of a character (a lone surrogate)"
        case int():
            return None if -MAX_INTEGER - 1 <= value <= MAX_INTEGER else "must fit into 64 bits; send it as a string"
        case float():
            return None if math.isfinite(value) else "must be a finite number"
        case Mapping() | list() | tuple() if depth > MAX_DEPTH:
            return f"must not be nested deeper than {MAX_DEPTH} levels"
        case Mapping():
            keys_are_valid = all(isinstance(key, str) and "\0" not in key and _encodable(key) for key in value)
            return None if keys_are_valid else "must have field names of whole characters without NUL"
        case list() | tuple():
            return None
        case _:
            return "must be JSON"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


NOT_PORTABLE: Final = "not_portable"
"""The type of the validation error for content that a store or a queue could not keep."""

IDENTIFIER_RULE: Final = "must be 1 to 200 visible ASCII characters, without spaces"
IDENTIFIER_PATTERN: Final = described(r"^[!-~]{1,200}$", IDENTIFIER_RULE)
TEXT_PATTERN: Final = described(
    r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
    "must not be blank and must not contain control characters",
)

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
