"""Courier events: accepted signed, applied to shipments, forwarded where asked (seeds 000 to 002)."""

from .contract import (
    ActiveShipment,
    AttemptSummary,
    CourierDeadLetter,
    CourierEvent,
    CourierIntake,
    CourierSignature,
    ShipmentFacts,
)
from .door import CourierDoor
from .workload import ACTIVE_SHIPMENTS, Courier, CourierOptions

__all__ = [
    "ACTIVE_SHIPMENTS",
    "ActiveShipment",
    "AttemptSummary",
    "Courier",
    "CourierDeadLetter",
    "CourierDoor",
    "CourierEvent",
    "CourierIntake",
    "CourierOptions",
    "CourierSignature",
    "ShipmentFacts",
]
