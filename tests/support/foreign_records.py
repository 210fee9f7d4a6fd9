"""Records as the small Node system writes them (``tests/interop/node``), without a Node process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

DATES = ("text", "all-text", "date")
BEGAN = datetime(2026, 2, 26, 12, 0, tzinfo=UTC)


class NodeRecords:
    """Makes documents. ``dates`` as in ``gateway.mjs``: text, all-text (``expiresAt`` too), or date."""

    def __init__(self, dates: str) -> None:
        self.dates = dates

    def at(self, minutes: float = 0) -> datetime | str:
        """An instant, so many minutes after the beginning."""
        at = BEGAN + timedelta(minutes=minutes)
        return at if self.dates == "date" else _text(at)

    def expiry(self, days: float) -> datetime | str:
        """An instant, so many days from now."""
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
        return _text(at) if self.dates == "all-text" else at

    def event(self, name: str, status: str = "received", attempts: int = 0, **fields: Any) -> dict[str, Any]:
        """A document of ``processed_events``."""
        terminal = {"expiresAt": self.expiry(30)} if status in {"processed", "dead_lettered"} else {}
        return {
            "_id": ObjectId(),
            "idempotencyKey": f"courier-x:{name}",
            "eventId": name,
            "eventType": "shipment.status.updated",
            "status": status,
            "attemptCount": attempts,
            "lastErrorCode": None,
            "lastErrorMessage": None,
            "firstSeenAt": self.at(),
            "updatedAt": self.at(1),
            **terminal,
            **fields,
        }

    def letter(self, name: str, attempts: int = 2, **fields: Any) -> dict[str, Any]:
        """A document of ``dead_letter_events``."""
        return {
            "_id": ObjectId(),
            "eventId": name,
            "idempotencyKey": f"courier-x:{name}",
            "eventType": "shipment.status.updated",
            "attemptCount": attempts,
            "terminalReasonCode": "ETIMEDOUT_EXHAUSTED",
            "terminalReasonMessage": "downstream timed out",
            "attemptHistory": [
                {"attempt": number, "outcome": "failed", "errorCode": "ETIMEDOUT"} for number in range(1, attempts + 1)
            ],
            "payloadSnapshot": {"shipmentId": f"shp_{name}", "orderId": "ord_1", "status": "delivered"},
            "reviewStatus": "pending",
            "createdAt": self.at(2),
            "expiresAt": self.expiry(90),
            **fields,
        }

    def shipment(self, name: str, at: str = "2026-02-26T12:00:00Z", **fields: Any) -> dict[str, Any]:
        """A document of ``active_shipments``."""
        return {
            "_id": ObjectId(),
            "shipmentId": f"shp_{name}",
            "orderId": "ord_1",
            "currentState": "in_transit",
            "lastEventId": name,
            "lastEventType": "shipment.status.updated",
            "lastEventAt": datetime.fromisoformat(at) if self.dates == "date" else at,
            "metadata": {"weight": 3},
            "createdAt": self.at(),
            "updatedAt": self.at(1),
            **fields,
        }


def node_writes(name: str, status: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The filter and the update with which the Node worker writes into whatever entry has the key."""
    begins = {"$inc": {"attemptCount": 1}} if status == "processing" else {}
    return {"idempotencyKey": f"courier-x:{name}"}, {
        "$set": {"status": status, "updatedAt": _text(BEGAN + timedelta(hours=1)), **fields},
        "$setOnInsert": {"firstSeenAt": _text(BEGAN)},
        **begins,
    }


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
