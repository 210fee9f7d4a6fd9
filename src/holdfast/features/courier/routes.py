"""``GET /v1/events/{idempotencyKey}`` and ``GET /v1/shipments/{shipmentId}``: read courier events and shipments."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path

from holdfast import EntryQuery, NotFound, Page
from holdfast.feature import Store
from holdfast.http import Routes

from .feature import CourierService
from .views import EventView, ShipmentView, TimelineEntry
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
