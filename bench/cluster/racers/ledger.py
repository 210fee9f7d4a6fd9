"""The ledger alone: events of the courier are recorded, claimed and settled in MongoDB, without a queue or an API.

Started with one JSON object as its argument: ``uri``, ``database``, ``pid`` of mongod (or null), ``events``, ``batch``.
Prints one JSON object: for each step, the processor time of mongod and of this process for one event, and the commands
for one batch. To compare two versions of the code, start this program with one and then with the other, again and
again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import monitoring

from bench.processor_time import used_by
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Claimed, ClaimResult, Lease, NewEntry
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Complete, Settlement
from holdfast.features.courier.workload import Courier
from holdfast.stores.mongo import MongoStore

_SHIPMENTS = 1_000
_LEASE = timedelta(seconds=30)
_KEPT = timedelta(days=90)
_WARM = 500
_BODY = (
    '{"eventId":"%(event)s","eventType":"shipment.status.updated","occurredAt":"%(at)s","source":"courier-bench",'
    '"payload":{"shipmentId":"%(shipment)s","orderId":"ord_%(shipment)s","status":"out_for_delivery","location":'
    '{"city":"Porto Alegre","depot":"POA-3","lat":-30.0346,"lon":-51.2177},"carrierNote":"Left the depot with the '
    'morning route; next scan at the door."},"idempotencyKey":"courier-bench:%(event)s","receivedAt":"%(at)s",'
    '"traceId":"%(trace)s","attempt":1,"schemaVersion":"1"}'
)


class Commands(monitoring.CommandListener):
    """Counts the commands that the driver sends."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Count one."""
        self.counts[event.command_name] += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing."""


def an_entry(number: int, at: str) -> NewEntry:
    """An event of about 500 bytes, as the intake records it."""
    names = {"event": f"evt_{number:09d}", "shipment": f"shp_{number % _SHIPMENTS:06d}", "trace": f"{number:032x}"}
    return NewEntry(
        workload="courier",
        key=f"courier-bench:{names['event']}",
        job_id=f"courier-bench-{names['event']}",
        body=_BODY % (names | {"at": at}),
        fingerprint=f"{number:064x}",
        labels={
            "eventId": names["event"],
            "eventType": "shipment.status.updated",
            "source": "courier-bench",
            "traceId": names["trace"],
            "shipmentId": names["shipment"],
            "orderId": f"ord_{names['shipment']}",
            "status": "out_for_delivery",
            "occurredAt": at,
            "receivedAt": at,
        },
    )


def a_settlement(claim: Claimed) -> Settlement:
    """An event that is done: its shipment changes."""
    labels = claim.labels
    shipment = Upsert(
        "active_shipments",
        labels["shipmentId"],
        set={
            "orderId": labels["orderId"],
            "currentState": labels["status"],
            "lastEventId": labels["eventId"],
            "lastEventType": labels["eventType"],
            "lastEventAt": labels["occurredAt"],
            "metadata": {"carrierNote": "Left the depot with the morning route; next scan at the door."},
        },
        only_if_newer="lastEventAt",
    )
    result = {"shipmentId": labels["shipmentId"], "status": labels["status"]}
    return Settlement("courier", Lease(claim.job_id, claim.fence), Complete(_KEPT, effects=(shipment,), result=result))


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


class Race:
    """The steps, and what each of them used."""

    def __init__(self, store: MongoStore, pid: int | None, batch: int, commands: Commands) -> None:
        self._store = store
        self._pid = pid
        self._batch = batch
        self._commands = commands

    async def run(self, first: int, events: int) -> dict[str, dict[str, Any]]:
        """Record all events, then claim all of them, then settle all of them."""
        at = isoformat(datetime.now(UTC))
        entries = [an_entry(first + number, at) for number in range(events)]
        claims: list[ClaimResult] = []

        async def claim(batch: Sequence[NewEntry]) -> None:
            job_ids = [each.job_id for each in batch]
            claims.extend(
                await self._store.claim("courier", job_ids, worker="bench", lease=_LEASE, max_attempts=5),
            )

        figures = {"record": await self._step(entries, self._store.record)}
        figures["claim"] = await self._step(entries, claim)
        settlements = [a_settlement(each) for each in claims if isinstance(each, Claimed)]
        figures["settle"] = await self._step(settlements, self._store.settle)
        return figures

    async def _step(self, items: Sequence[Any], step: Callable[[Sequence[Any]], Awaitable[object]]) -> dict[str, Any]:
        self._commands.counts.clear()
        before, ours = self._used(), time.process_time()
        for batch in _batches(items, self._batch):
            await step(batch)
        after, spent = self._used(), time.process_time() - ours
        times = len(items) / self._batch
        return {
            "mongod_us": None if before is None or after is None else 1e6 * (after - before) / len(items),
            "client_us": 1e6 * spent / len(items),
            "commands": {name: round(count / times, 2) for name, count in self._commands.counts.items()},
        }

    def _used(self) -> float | None:
        return None if self._pid is None else used_by(self._pid)


async def race(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Prepare the database, warm up, and measure."""
    commands = Commands()
    monitoring.register(commands)
    store = MongoStore(plan["uri"], plan["database"], [Courier()])
    await store.migrate()
    await store.open()
    try:
        running = Race(store, plan["pid"], plan["batch"], commands)
        await running.run(900_000_000, _WARM)
        return await running.run(0, plan["events"])
    finally:
        await store.disconnect()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(race(json.loads(sys.argv[1])))))
