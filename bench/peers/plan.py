"""What a process of a measured system is told: one variable of the environment, as JSON. And the job's content."""

from __future__ import annotations

import json
import os
from typing import Any, Final

VARIABLE: Final = "BENCH_PEERS_PLAN"
AT_ONCE: Final = 50
"""Jobs in work, and submissions under way, where a system has such a number."""

_CONTENT: Final = {
    "eventType": "shipment.status.updated",
    "occurredAt": "2026-01-01T00:00:00.000Z",
    "source": "courier-bench",
    "payload": {
        "shipmentId": "shp_000001",
        "orderId": "ord_000001",
        "status": "out_for_delivery",
        "location": {"city": "Porto Alegre", "depot": "POA-3", "lat": -30.0346, "lon": -51.2177},
        "carrierNote": "Left the depot with the morning route; next scan at the door. " * 3,
    },
}


def plan() -> dict[str, Any]:
    """The addresses of the servers, and the folder of this run."""
    found: dict[str, Any] = json.loads(os.environ[VARIABLE])
    return found


def content(number: int) -> dict[str, Any]:
    """About 500 bytes of JSON. The number makes each job another one."""
    return {"number": f"evt_{number:09d}", **_CONTENT}
