"""The answers of the courier routes. Field names on the wire are those of the specification (camelCase)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from holdfast import LedgerEntry, Status, isoformat
from holdfast.views import EntryView, Instant, View


class EventReceipt(View):
    """The event is recorded and will be processed. A duplicate gets the first receipt again."""

    acknowledged: Literal[True]
    event_id: str = Field(examples=["evt_123"])
    idempotency_key: str = Field(examples=["courier-x:evt_123"])
    trace_id: str = Field(examples=["req_a1b2c3"])
    queued: bool = Field(
        description="False: the event is in the ledger, but not yet in the queue. It will be queued later.",
        examples=[True],
    )
    duplicate: bool = Field(description="Whether the same event had been accepted before.")
    received_at: Instant


class EventView(EntryView):
    """The state and the attempts of one courier event."""

    idempotency_key: str = Field(examples=["courier-x:evt_123"])
    event_id: str | None = Field(examples=["evt_123"])
    event_type: str | None = Field(examples=["shipment.status.updated"])
    trace_id: str | None = Field(examples=["req_a1b2c3"])

    @classmethod
    def of(cls, entry: LedgerEntry) -> EventView:
        """The view of an event's entry."""
        return cls.picked(
            entry,
            idempotency_key=entry.key,
            event_id=entry.labels.get("eventId"),
            event_type=entry.labels.get("eventType"),
            trace_id=entry.labels.get("traceId"),
        )


class TimelineEntry(View):
    """One event of a shipment, with its state in the ledger."""

    idempotency_key: str = Field(examples=["courier-x:evt_123"])
    event_id: str | None = Field(examples=["evt_123"])
    event_type: str | None = Field(examples=["shipment.status.updated"])
    status: str | None = Field(
        description="The state of the shipment, as the courier sent it.", examples=["out_for_delivery"]
    )
    occurred_at: str | None = Field(examples=["2026-02-26T12:00:00.000Z"])
    received_at: str | None = Field(examples=["2026-02-26T12:00:01.000Z"])
    state: Status = Field(description="The state of the event in the ledger.", examples=["processed"])
    note: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> TimelineEntry:
        """The view of an event's entry in a timeline."""
        return cls.picked(
            entry.labels,
            idempotency_key=entry.key,
            received_at=entry.labels.get("receivedAt") or isoformat(entry.first_seen_at),
            state=entry.status,
            note=entry.note,
        )


class ShipmentView(View):
    """A shipment: its state after the applied events (null until an event is applied), and all its events."""

    shipment_id: str = Field(examples=["shp_456"])
    order_id: str | None = Field(default=None, examples=["ord_789"])
    current_state: str | None = Field(default=None, examples=["out_for_delivery"])
    last_event_id: str | None = Field(default=None, examples=["evt_123"])
    last_event_type: str | None = Field(default=None, examples=["shipment.status.updated"])
    last_event_at: str | None = Field(default=None, examples=["2026-02-26T12:00:00.000Z"])
    metadata: dict[str, Any] | None = Field(default=None, examples=[{}])
    created_at: str | None = Field(default=None, examples=["2026-02-26T12:00:02.000Z"])
    updated_at: str | None = Field(default=None, examples=["2026-02-26T12:00:02.000Z"])
    timeline: list[TimelineEntry] = Field(description="By `occurredAt`, oldest first.")
    timeline_complete: bool = Field(description="False when only the latest events are shown.", examples=[True])

    @classmethod
    def of(
        cls,
        shipment_id: str,
        record: Mapping[str, Any] | None,
        timeline: Sequence[TimelineEntry],
        *,
        complete: bool,
    ) -> ShipmentView:
        """The stored record, with its timeline."""
        return cls.picked(record or {}, shipment_id=shipment_id, timeline=timeline, timeline_complete=complete)
