"""Courier events: signed, applied to shipments, and forwarded to a downstream if one is configured."""

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
