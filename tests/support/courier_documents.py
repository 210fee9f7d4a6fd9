"""Courier documents for tests: the specification's example (C6), with changes."""

from __future__ import annotations

from typing import Any


def payload(**changes: Any) -> dict[str, Any]:
    return {"shipmentId": "shp_456", "orderId": "ord_789", "status": "out_for_delivery"} | changes


def intake_document(**changes: Any) -> dict[str, Any]:
    """A body for the API. Its ``occurredAt`` is the example's: the receiving clock of the test must be near it."""
    return {
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "occurredAt": "2026-02-26T12:00:00Z",
        "source": "courier-x",
        "payload": payload(),
    } | changes


def event_document(**changes: Any) -> dict[str, Any]:
    """The job of rule C6."""
    return (
        intake_document()
        | {
            "idempotencyKey": "courier-x:evt_123",
            "traceId": "req_a1b2c3",
            "signatureMeta": {"algorithm": "hmac-sha256", "timestamp": 1772107200, "signature": "hex-or-base64"},
            "receivedAt": "2026-02-26T12:00:01Z",
            "attempt": 1,
        }
        | changes
    )


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}
