"""One example for each body that the API accepts or returns, by the name of its schema. All are about one event."""

from __future__ import annotations

from typing import Any, Final

_KEY: Final = "courier-x:evt_123"
_LETTER_ID: Final = "dl_5f0c7a1e9b3d4c2a8e6f"
_RECEIVED: Final = "2026-02-26T12:00:01.000Z"
_FIRST_ATTEMPT: Final = {
    "attempt": 1,
    "outcome": "failed",
    "worker": "worker-1",
    "startedAt": "2026-02-26T12:00:01.120Z",
    "finishedAt": "2026-02-26T12:00:11.130Z",
    "errorCode": "TIMEOUT",
    "errorMessage": "The downstream did not answer in time.",
}
_LETTER: Final[dict[str, Any]] = {
    "id": _LETTER_ID,
    "workload": "courier",
    "idempotencyKey": _KEY,
    "jobId": "courier-x.evt_123",
    "eventId": "evt_123",
    "eventType": "shipment.status.updated",
    "generation": 1,
    "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
    "terminalReasonMessage": "Retries exhausted after transient timeouts",
    "attemptCount": 1,
    "reviewStatus": "reviewed",
    "createdAt": "2026-02-26T12:05:00.000Z",
    "updatedAt": "2026-02-26T13:00:00.000Z",
    "expiresAt": "2026-05-27T12:05:00.000Z",
    "replayedAs": None,
}
_DECISION: Final = {"actor": "ana", "reason": "The downstream was down for maintenance; it is back."}

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "EventReceipt": {
        "acknowledged": True,
        "eventId": "evt_123",
        "idempotencyKey": _KEY,
        "traceId": "req_a1b2c3",
        "queued": True,
        "duplicate": False,
        "receivedAt": _RECEIVED,
    },
    "EventView": {
        "idempotencyKey": _KEY,
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "traceId": "req_a1b2c3",
        "status": "failed",
        "generation": 1,
        "attemptCount": 1,
        "attemptHistory": [_FIRST_ATTEMPT],
        "lastErrorCode": "TIMEOUT",
        "lastErrorMessage": "The downstream did not answer in time.",
        "firstSeenAt": _RECEIVED,
        "updatedAt": "2026-02-26T12:00:11.130Z",
        "expiresAt": None,
        "nextAttemptAt": "2026-02-26T12:00:12.250Z",
        "note": None,
        "warnings": [],
    },
    "ShipmentView": {
        "shipmentId": "shp_456",
        "orderId": "ord_789",
        "currentState": "out_for_delivery",
        "lastEventId": "evt_123",
        "lastEventType": "shipment.status.updated",
        "lastEventAt": "2026-02-26T12:00:00.000Z",
        "metadata": {},
        "createdAt": "2026-02-26T12:00:02.000Z",
        "updatedAt": "2026-02-26T12:00:02.000Z",
        "timeline": [
            {
                "idempotencyKey": _KEY,
                "eventId": "evt_123",
                "eventType": "shipment.status.updated",
                "status": "out_for_delivery",
                "occurredAt": "2026-02-26T12:00:00.000Z",
                "receivedAt": _RECEIVED,
                "state": "processed",
                "note": None,
            },
        ],
        "timelineComplete": True,
    },
    "JobReceipt": {
        "acknowledged": True,
        "workload": "invoices",
        "key": "invoice-7",
        "jobId": "invoice-7",
        "queued": True,
        "duplicate": False,
        "receivedAt": _RECEIVED,
    },
    "LetterList": {"items": [_LETTER], "total": 1, "next": None},
    "LetterView": {
        **_LETTER,
        "attemptHistory": [_FIRST_ATTEMPT],
        "payloadSnapshot": {"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"},
        "decisions": [{"step": "reviewed", **_DECISION, "at": "2026-02-26T13:00:00.000Z"}],
    },
    "ReplayView": {"dryRun": False, "matched": 1, "replayed": [_LETTER_ID], "skipped": [], "refused": []},
    "DecisionBody": _DECISION,
    "ReplayBody": {
        **_DECISION,
        "filter": {"workload": "courier", "reasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED"},
        "limit": 100,
        "dryRun": True,
    },
}
