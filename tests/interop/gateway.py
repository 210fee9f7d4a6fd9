"""A gateway in this process: the API, a worker and maintenance, over the Redis and the MongoDB of the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.queries import LetterQuery, Page
from holdfast.features.courier.signatures import sign
from holdfast.wiring import System, open_system
from tests.support.courier_documents import event_document, intake_document, payload
from tests.support.downstream import Downstream
from tests.support.settings import Settings

MAIN = "courier-events-main"
DEAD = "courier-events-dlq"
SOURCE = "courier-x"
SECRET = "a secret for the interop tests 0123456789"


class Gateway:
    """What a test does with it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(system.api()), base_url="http://gateway")

    async def post(self, document: dict[str, Any]) -> dict[str, Any]:
        """Send a courier's signed event to the API; return the receipt."""
        body, now = json.dumps(document).encode(), int(time.time())
        headers = {
            "content-type": "application/json",
            "x-signature": sign(SECRET, now, body),
            "x-signature-timestamp": str(now),
            "x-signature-algorithm": "hmac-sha256",
        }
        answer = await self._http.post("/v1/events/courier", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return answer.json()

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """A worker and maintenance run, and stop when the block is left."""
        stop = asyncio.Event()
        worker = asyncio.create_task(self.system.worker().run(stop))
        try:
            yield
        finally:
            stop.set()
            await worker

    async def entry(self, key: str) -> LedgerEntry | None:
        return await self.system.store.entry("courier", key)

    async def shipment(self, shipment_id: str) -> dict[str, Any] | None:
        found = await self.system.store.get("active_shipments", shipment_id)
        return None if found is None else dict(found)

    async def letters(self) -> list[DeadLetter]:
        found = await self.system.store.letters(LetterQuery(workload="courier"), Page(limit=100))
        return list(found.items)

    async def close(self) -> None:
        await self._http.aclose()


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[Gateway]:
    async with open_system(settings) as system:
        gateway = Gateway(system)
        yield gateway
        await gateway.close()


def settings_for(redis_url: str, prefix: str, mongo_uri: str, database: str, **changes: Any) -> Settings:
    """A cluster of the test's own, in a hurry."""
    return Settings(
        **{
            "redis_url": redis_url,
            "mongo_uri": mongo_uri,
            "mongo_db_name": database,
            "queue_prefix": prefix,
            "courier_secrets": {SOURCE: [SECRET]},
            "upkeep_interval_ms": 50,
            "retry_max_attempts": 3,
            "retry_backoff_base_ms": 5,
            # No hurry here: on a busy machine, an answer that is late would be an event that is forwarded twice.
            "handler_timeout_ms": 90_000,
            "courier_downstream_timeout_ms": 60_000,
        }
        | changes
    )


def forwarding_to(downstream: Downstream) -> dict[str, str]:
    """Settings with which events are forwarded there."""
    return {"courier_downstream_url": downstream.url, "courier_downstream_secret": "for the downstream 0123456789"}


def an_event(name: str, **facts: Any) -> dict[str, Any]:
    """The job of rule C6, as a producer in Node would write it: it happened just now."""
    return event_document(
        eventId=name,
        idempotencyKey=f"{SOURCE}:{name}",
        occurredAt=_now(),
        receivedAt=_now(),
        payload=_facts(name, facts),
    )


def a_request(name: str, **facts: Any) -> dict[str, Any]:
    """The body of a courier's request."""
    return intake_document(eventId=name, occurredAt=_now(), payload=_facts(name, facts))


def _facts(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    return payload(**{"shipmentId": f"shp_{name}"} | facts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
