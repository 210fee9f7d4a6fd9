"""A program that is not ours and puts jobs straight into the queue, with BullMQ's own library.

It stands for any BullMQ producer, in Node or elsewhere, and knows no more of Holdfast than the name of the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from bullmq import Job, Queue

QUEUE: Final = "courier-events-main"
JOB_NAME: Final = "courier-event"


def add(redis_url: str, data: Mapping[str, Any], times: int) -> list[str]:
    """``queue.add`` so many times; the ids that BullMQ gave."""

    async def added(queue: Queue) -> list[str]:
        return [(await queue.add(JOB_NAME, dict(data))).id for _ in range(times)]

    return asyncio.run(_with_queue(redis_url, added))


def states(redis_url: str, job_ids: Sequence[str]) -> list[str]:
    """``job.getState`` of each: where BullMQ has it."""

    async def looked_up(queue: Queue) -> list[str]:
        return [await (await Job.fromId(queue, job_id)).getState() for job_id in job_ids]

    return asyncio.run(_with_queue(redis_url, looked_up))


async def _with_queue(redis_url: str, use: Callable[[Queue], Awaitable[list[str]]]) -> list[str]:
    queue = Queue(QUEUE, {"connection": redis_url})
    try:
        return await use(queue)
    finally:
        await queue.close()
