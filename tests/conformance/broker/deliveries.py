"""The jobs and helper functions of the broker suite."""

from __future__ import annotations

from datetime import timedelta

from holdfast.contracts.queues import Acknowledgement, Delivery, QueueJob

QUEUE = "letters-main"
OTHER = "letters-other"
HOUR = timedelta(hours=1)
NO_WAIT = timedelta(0)
LONG_WAIT = timedelta(seconds=30)

AWKWARD = '{"text": "naïve 🦑 \' \\" \\\\ ; -- \u2028 ﷽"}'


def job(job_id: str, **changes) -> QueueJob:
    return QueueJob(**({"job_id": job_id, "data": f'{{"of": "{job_id}"}}'} | changes))


async def take(broker, limit=100, *, queue=QUEUE, wait=NO_WAIT, lease=HOUR, rate=None) -> list[Delivery]:
    return await broker.take(queue, limit, wait=wait, lease=lease, rate=rate)


async def taken_ids(broker, limit=100, **options) -> list[str]:
    return [delivery.job_id for delivery in await take(broker, limit, **options)]


async def settle(broker, handling, *deliveries) -> None:
    await broker.settle([Acknowledgement(delivery, handling) for delivery in deliveries])
