"""Jobs and helper functions of the MongoDB tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast import Collection, Workload
from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Claimed, Lease, NewEntry
from holdfast.contracts.transitions import Complete, MoveToDeadLetters, Settlement, Transition
from tests.conformance.vocabulary import Anything

DAY = timedelta(days=1)
LABELS = {"eventId": "evt-1", "eventType": "shipment.updated", "traceId": "t-1", "shipmentId": "shp-1", "source": "x"}


class Parcels(Workload[Anything]):
    """Jobs with a fairness key, and collections of records; one of them expires."""

    name = "parcels"
    contract = Anything
    queue = "parcels-main"
    dead_letter_queue = "parcels-dead"
    ttl = DAY
    collections: Sequence[Collection] = (
        Collection(
            "parcel_slips",
            key="slip",
            indexes=(("owner", "at", "slip"),),
            instants=("at", "until"),
            expires="until",
        ),
        Collection("parcel_rooms", key="room"),
        Collection("parcel_keys", key="name"),
    )

    def fairness_key(self, data: Anything) -> str | None:
        del data
        return "a"


def a_parcel(key: str = "k", **changes: Any) -> NewEntry:
    return an_event(key, **({"workload": "parcels"} | changes))


def an_event(key: str = "k", **changes: Any) -> NewEntry:
    facts: dict[str, Any] = {
        "workload": "courier",
        "key": key,
        "job_id": f"id-{key}",
        "body": f'{{"eventId": "{key}", "payload": {{"shipmentId": "shp-1"}}}}',
        "fingerprint": f"content of {key}",
        "labels": LABELS,
    }
    return NewEntry(**(facts | changes))


async def claimed(store: Any, key: str = "k", lease: timedelta = DAY, workload: str = "courier") -> Claimed:
    (claim,) = await store.claim(workload, [f"id-{key}"], worker="w", lease=lease, max_attempts=5)
    assert isinstance(claim, Claimed), claim
    return claim


def settlement(claim: Claimed, transition: Transition, workload: str = "courier") -> Settlement:
    return Settlement(workload, Lease(claim.job_id, claim.fence), transition)


def moved(shipment: str = "shp-1", at: str = "2026-02-26T12:00:00.000Z", **fields: Any) -> Upsert:
    return Upsert("active_shipments", shipment, {"lastEventAt": at} | fields, only_if_newer="lastEventAt")


def done(*effects: Any) -> Complete:
    return Complete(DAY, effects)


def dead_lettered(key: str = "k", **changes: Any) -> MoveToDeadLetters:
    facts: dict[str, Any] = {
        "letter_id": letter_id("courier", key, 1),
        "code": "HTTP_404",
        "message": "not there",
        "reason_code": "REFUSED",
        "reason_message": "The other side refused it.",
        "retention": DAY,
        "letter_retention": DAY,
    }
    return MoveToDeadLetters(**(facts | changes))


async def settled(store: Any, key: str, transition: Transition, **changes: Any) -> None:
    """Record a job, claim it and settle it with this transition."""
    await store.record([an_event(key, **changes)])
    (answer,) = await store.settle([settlement(await claimed(store, key), transition)])
    assert not answer.stale
