"""Courier events: accepted signed, applied to shipments, forwarded where asked (seeds 000 to 002)."""

from .admission import CourierAdmission
from .contract import (
    ActiveShipment,
    AttemptSummary,
    CourierDeadLetter,
    CourierEvent,
    CourierIntake,
    CourierSignature,
    ShipmentFacts,
)
from .workload import ACTIVE_SHIPMENTS, Courier, CourierOptions

__all__ = [
    "ACTIVE_SHIPMENTS",
    "ActiveShipment",
    "AttemptSummary",
    "Courier",
    "CourierAdmission",
    "CourierDeadLetter",
    "CourierEvent",
    "CourierIntake",
    "CourierOptions",
    "CourierSignature",
    "ShipmentFacts",
]
