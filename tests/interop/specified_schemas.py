"""The jobs in the queues as the specification has them (C6, C54).

Written by hand from its text and its examples, and not from our models.
"""

from __future__ import annotations

from typing import Any

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string", "minLength": 1}
_INSTANT = {"type": "string", "format": "date-time"}

MAIN_QUEUE_PAYLOAD: dict[str, Any] = {
    "$schema": _DRAFT,
    "type": "object",
    "required": [
        *("eventId", "eventType", "occurredAt", "source", "idempotencyKey", "traceId"),
        *("signatureMeta", "payload", "receivedAt", "attempt"),
    ],
    "additionalProperties": False,
    "properties": {
        "eventId": _TEXT,
        "eventType": _TEXT,
        "occurredAt": _INSTANT,
        "source": _TEXT,
        "idempotencyKey": _TEXT,
        "traceId": _TEXT,
        "signatureMeta": {
            "type": "object",
            "required": ["algorithm", "timestamp", "signature"],
            "additionalProperties": False,
            "properties": {"algorithm": _TEXT, "timestamp": {"type": "integer"}, "signature": _TEXT},
        },
        "payload": {
            "type": "object",
            "required": ["shipmentId", "orderId", "status"],
            "properties": {"shipmentId": _TEXT, "orderId": _TEXT, "status": _TEXT},
        },
        "receivedAt": _INSTANT,
        "attempt": {"type": "integer", "minimum": 1},
    },
}

DEAD_LETTER_PAYLOAD: dict[str, Any] = {
    "$schema": _DRAFT,
    "type": "object",
    "required": [
        *("eventId", "idempotencyKey", "traceId", "attemptCount", "terminalReasonCode", "terminalReasonMessage"),
        *("attemptHistory", "payloadSnapshot", "deadLetteredAt"),
    ],
    "additionalProperties": False,
    "properties": {
        "eventId": _TEXT,
        "idempotencyKey": _TEXT,
        "traceId": _TEXT,
        "attemptCount": {"type": "integer", "minimum": 0},
        "terminalReasonCode": _TEXT,
        "terminalReasonMessage": _TEXT,
        "attemptHistory": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["attempt", "outcome", "errorCode"],
                "additionalProperties": False,
                "properties": {"attempt": {"type": "integer", "minimum": 1}, "outcome": _TEXT, "errorCode": _TEXT},
            },
        },
        "payloadSnapshot": {"type": "object"},
        "deadLetteredAt": _INSTANT,
    },
}
