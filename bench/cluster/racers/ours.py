"""Our broker: ``take`` and ``settle`` in pipelines, or ``publish``."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.contracts.queues import Acknowledgement, Finished, QueueJob

from .lines import race, timed

_LEASE = timedelta(seconds=30)
_SHORT = timedelta(milliseconds=100)


async def consume(broker: BullmqBroker, queue: str, count: int, *, pipelines: int, batch: int) -> None:
    """Take, read and finish ``count`` jobs, which are all there; return when the last one is finished in Redis."""
    left = count

    async def pipeline() -> None:
        nonlocal left
        while (size := min(batch, left)) > 0:
            left -= size
            deliveries = await broker.take(queue, size, wait=_SHORT, lease=_LEASE)
            left += size - len(deliveries)
            for delivery in deliveries:
                json.loads(delivery.data)  # as the other two do before they call a handler
            await broker.settle([Acknowledgement(delivery, Finished()) for delivery in deliveries])

    await asyncio.gather(*(pipeline() for _ in range(pipelines)))


async def add(broker: BullmqBroker, queue: str, first: int, count: int, data: str) -> None:
    """Publish ``count`` jobs; the broker makes batches of them itself."""
    await broker.publish(queue, [QueueJob(f"job-{number}", data) for number in range(first, first + count)])


async def main(plan: dict[str, Any]) -> None:
    """Warm up, then race."""
    broker = BullmqBroker(plan["url"], prefix=plan["prefix"], keep_completed=plan["keep"])
    await broker.open()
    queue, count, warm = plan["queue"], plan["count"], plan["warm"]
    if plan["what"] == "add":
        await add(broker, plan["warm_queue"], 0, warm, plan["data"])
        await timed(lambda: add(broker, queue, 0, count, plan["data"]))
    else:
        how = {"pipelines": plan["pipelines"], "batch": plan["batch"]}
        await consume(broker, plan["warm_queue"], warm, **how)
        await timed(lambda: consume(broker, queue, count, **how))
    await broker.close()


if __name__ == "__main__":
    race(main)
