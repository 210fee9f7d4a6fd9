"""``GET /v1/events/{idempotencyKey}`` and ``GET /v1/shipments/{shipmentId}``: read courier events and shipments.

The OpenAPI operation of the intake is here too: FastAPI does not know the intake, because it is plain ASGI.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path

from holdfast import EntryQuery, NotFound, Page
from holdfast.feature import Store
from holdfast.http import INTAKE_CODES, JSON_TYPE, Code, Routes, header, refusals

from .feature import CourierService
from .signatures import INVALID_SIGNATURE
from .views import EventReceipt, EventView, ShipmentView, TimelineEntry
from .workload import ACTIVE_SHIPMENTS

_PAGE: Final = 50
_MAX_TIMELINE: Final = 1000


def event_routes(courier: CourierService, guard: Any) -> Routes:  # noqa: ANN401 - a dependency of FastAPI
    """The state and the attempt history of one event."""
    routes = Routes("events", "The state of courier events. Needs the operator token.", guard)
    workload = courier.workload.name

    @routes.get("/v1/events/{idempotencyKey:path}", summary="State and attempt history of an event")
    async def show_event(
        key: Annotated[str, Path(alias="idempotencyKey", examples=["courier-x:evt_123"])],
    ) -> EventView:
        entry = await courier.services.store.entry(workload, key)
        if entry is None:
            raise NotFound
        return EventView.of(entry)

    return routes


def shipment_routes(courier: CourierService, guard: Any) -> Routes:  # noqa: ANN401 - a dependency of FastAPI
    """The state of one shipment, and its events."""
    routes = Routes("shipments", "The state of shipments, as the events left it. Needs the operator token.", guard)
    workload = courier.workload.name

    @routes.get("/v1/shipments/{shipmentId:path}", summary="State and timeline of a shipment")
    async def show_shipment(
        shipment_id: Annotated[str, Path(alias="shipmentId", examples=["shp_456"])],
    ) -> ShipmentView:
        record = await courier.services.store.get(ACTIVE_SHIPMENTS, shipment_id)
        timeline, complete = await _events_of(courier.services.store, workload, shipment_id)
        if record is None and not timeline:
            raise NotFound
        timeline.sort(key=lambda each: (each.occurred_at or "", each.received_at))
        return ShipmentView.of(shipment_id, record, timeline, complete=complete)

    return routes


async def _events_of(store: Store, workload: str, shipment_id: str) -> tuple[list[TimelineEntry], bool]:
    """The latest events of a shipment, and whether they are all of its events.

    Only their views are kept: a thousand bodies would be too much.
    """
    query = EntryQuery(workload=workload, labels={"shipmentId": shipment_id})
    timeline: list[TimelineEntry] = []
    cursor = None
    while len(timeline) < _MAX_TIMELINE:
        found = await store.find(query, Page(limit=_PAGE, cursor=cursor))
        timeline += map(TimelineEntry.of, found.items)
        cursor = found.next
        if cursor is None:
            break
    return timeline, cursor is None


CHAPTER: Final = {"name": "intake", "description": "Signed events from couriers."}

_X_SIGNATURE: Final = """\
HMAC-SHA-256 of `<timestamp>.<raw body>` with a secret of the event's source, in hex or base64, with or without
the prefix `sha256=`. `x-signature-timestamp` holds the timestamp."""
_WEBHOOK_SIGNATURE: Final = """\
Standard Webhooks: `v1,` and the base64 HMAC-SHA-256 of `<webhook-id>.<webhook-timestamp>.<raw body>`. Several
signatures are separated by spaces. A secret that starts with `whsec_` is base64; any other secret is used as its UTF-8
bytes."""
_DESCRIPTION: Final = """\
The request is signed in one of two ways: our own (`x-signature`, `x-signature-timestamp`, optionally
`x-signature-algorithm`) or Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`). If `x-signature`
is present, only our own way counts. The signature is verified on the raw bytes, and its secret must belong to the
`source` of the event. The timestamp may differ from our clock by 300 s.

The same event again gets the first receipt and `duplicate: true`. Another event under the same idempotency key gets
409. JSON must be unambiguous: no duplicate keys, no NaN, no integers beyond 2^53 - 1, no half surrogate pairs, no more
than 32 levels. Compressed bodies are refused."""
_SECONDS: Final = r"^[1-9][0-9]{0,11}$"

SECURITY_SCHEMES: Final = {
    "xSignature": {"type": "apiKey", "in": "header", "name": "x-signature", "description": _X_SIGNATURE},
    "webhookSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": _WEBHOOK_SIGNATURE,
    },
}


def courier_operation(schema: dict[str, Any]) -> dict[str, Any]:
    """The operation. ``schema`` is the JSON Schema of the body."""
    return {
        "tags": [CHAPTER["name"]],
        "summary": "Push a courier event",
        "description": _DESCRIPTION,
        "operationId": "push_courier_event",
        "security": [{name: []} for name in SECURITY_SCHEMES],
        "parameters": [
            header(
                "x-signature-timestamp",
                "Unix seconds; part of what `x-signature` covers.",
                "1772107200",
                pattern=_SECONDS,
            ),
            header("x-signature-algorithm", "Only `hmac-sha256`, which is also the default.", "hmac-sha256"),
            header("webhook-id", "Part of what `webhook-signature` covers.", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"),
            header(
                "webhook-timestamp",
                "Unix seconds; part of what `webhook-signature` covers.",
                "1772107200",
                pattern=_SECONDS,
            ),
            header("x-request-id", "Becomes the event's `traceId`.", "req_a1b2c3"),
        ],
        "requestBody": {"required": True, "content": {JSON_TYPE: {"schema": schema}}},
        "responses": {
            202: {"description": "The event is recorded and will be processed.", "model": EventReceipt},
            **refusals(INVALID_SIGNATURE, Code.TOO_MANY_PER_SECOND, *INTAKE_CODES),
        },
    }
