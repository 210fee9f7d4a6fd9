"""Courier events: sign and send them, and read what became of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.contracts.times import isoformat

from .content import Data, as_object, aware, header_value, json_bytes, part
from .exchange import Exchange
from .signatures import sign
from .steps import Request, Steps
from .views import EventReceipt

_PATH: Final = "/v1/events/courier"


class CourierVerbs:
    """The requests of ``/v1/events`` and ``/v1/shipments``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(
        self,
        payload: Data,
        *,
        source: str,
        secret: str,
        event_id: str | None = None,
        event_type: str = "shipment.status.updated",
        occurred_at: datetime | None = None,
        key: str | None = None,
    ) -> Steps[EventReceipt]:
        """Sign an event with the secret of its source, and send it. When this returns, the event is on disk.

        ``payload`` has ``shipmentId``, ``orderId`` and ``status``. The event keeps its id and its idempotency key
        (``key``; otherwise the source and the id) in every try. To send the same event again later, give ``event_id``
        and ``occurred_at``.
        """
        event_id = header_value("The event id", event_id or f"evt_{secrets.token_hex(8)}")
        occurred_at = aware(occurred_at or datetime.fromtimestamp(self._exchange.timing.now(), UTC))
        event = {
            "eventId": event_id,
            "eventType": event_type,
            "occurredAt": isoformat(occurred_at),
            "source": source,
            **({} if key is None else {"idempotencyKey": key}),
            "payload": as_object(payload),
        }
        body = json_bytes(event)

        def signed(now: int) -> Mapping[str, str]:
            return sign(body, secret, message_id=event_id, now=now)

        signed(0)  # a secret that cannot sign is found before anything is sent
        document = yield from self._exchange.json(Request(method="POST", path=_PATH, body=body, sign=signed))
        return EventReceipt.read(document)

    def event(self, key: str) -> Steps[Mapping[str, Any]]:
        """The state and the attempts of an event, as the API has them. Needs the operator token."""
        document = yield from self._exchange.json(Request(method="GET", path=f"/v1/events/{part(key)}", operator=True))
        return dict(document)

    def shipment(self, shipment_id: str) -> Steps[Mapping[str, Any]]:
        """The state and the events of a shipment, as the API has them. Needs the operator token."""
        document = yield from self._exchange.json(
            Request(method="GET", path=f"/v1/shipments/{part(shipment_id)}", operator=True)
        )
        return dict(document)
