"""Settings and events for a gateway in this process, over the Redis and the MongoDB of the test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.courier_documents import event_document, intake_document, payload
from tests.support.downstream import Downstream
from tests.support.gateway import Gateway
from tests.support.settings import Settings
from tests.support.waiting import eventually

MAIN = "courier-events-main"
DEAD = "courier-events-dlq"
SOURCE = "courier-x"
SECRET = "a secret for the interop tests 0123456789"


async def post(gateway: Gateway, document: dict[str, Any]) -> dict[str, Any]:
    """Send a courier's signed event to the API, again while the ledger is out of reach; return the receipt."""

    async def taken() -> dict[str, Any] | None:
        answer = await gateway.post_event(document, SECRET)
        assert answer.status_code in {202, 503}, answer.text
        return answer.json() if answer.status_code == 202 else None

    return await eventually(taken)


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
