"""Examples of the bodies that the email routes accept and return, by the name of their schemas."""

from __future__ import annotations

from typing import Any, Final

_OUTBOX_ID: Final = "5d3f7a52-9c1e-5b77-8f0a-3b1f6f0c2e11"
_HTML_REF: Final = "0f8c1d4e-2a63-5c19-9b7e-6d5a4c3b2a10"
_RECEIVED: Final = "2026-11-16T12:00:01.000Z"

_RECEIPT: Final[dict[str, Any]] = {
    "acknowledged": True,
    "outboxId": _OUTBOX_ID,
    "jobId": _OUTBOX_ID,
    "requestId": "req_a1b2c3",
    "status": "ENQUEUED",
    "duplicate": False,
    "queued": True,
    "receivedAt": _RECEIVED,
    "scheduledFor": None,
}
_EMAIL: Final[dict[str, Any]] = {
    "outboxId": _OUTBOX_ID,
    "requestId": "req_a1b2c3",
    "status": "SENT",
    "to": "c***@e***.com",
    "ccCount": 0,
    "bccCount": 0,
    "subject": "Seu boleto está disponível",
    "htmlRef": _HTML_REF,
    "recipientId": "7b9e2c44-0d3a-5f61-a2c8-91e4d7f3b605",
    "externalId": "CUST-12345",
    "cpfCnpjHash": "a3c7b8d9...",
    "tags": ["boleto"],
    "priority": 5,
    "attempt": 1,
    "lastErrorCode": None,
    "lastErrorMessage": None,
    "sesMessageId": "0100018f-example",
    "enqueuedAt": _RECEIVED,
    "scheduledFor": None,
    "sentAt": "2026-11-16T12:00:01.480Z",
    "deadline": "2026-11-17T12:00:01.000Z",
}
_REQUEST: Final[dict[str, Any]] = {
    "to": "cliente@example.com",
    "subject": "Seu boleto está disponível",
    "html": "<p>Olá! Seu boleto está disponível.</p>",
    "tags": ["boleto"],
    "recipient": {"externalId": "CUST-12345", "nome": "João da Silva"},
}

EMAIL_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "EmailSendBody": _REQUEST,
    "EmailBatch": {"emails": [_REQUEST | {"idempotencyKey": "boleto-2026-11-0001"}]},
    "EmailReceipt": _RECEIPT,
    "BatchView": {
        "accepted": 1,
        "refused": 1,
        "answers": [
            {"index": 0, "statusCode": 202, "answer": _RECEIPT},
            {
                "index": 1,
                "statusCode": 400,
                "answer": {
                    "acknowledged": False,
                    "errorCode": "INVALID_PAYLOAD",
                    "message": "The body does not fulfil its contract.",
                    "traceId": "req_a1b2c3",
                    "details": [{"field": "subject", "problem": "is required"}],
                },
            },
        ],
    },
    "EmailView": _EMAIL,
    "EmailList": {"items": [_EMAIL], "next": None},
    "CancelView": {"outboxId": _OUTBOX_ID, "status": "CANCELLED"},
    "NotificationView": {"suppressed": 1},
}
