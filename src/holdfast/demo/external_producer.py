"""A foreign program that adds jobs to a queue, or reads a queue, with BullMQ's own library.

It is an example of any program with BullMQ, in Node or elsewhere. Of Holdfast it knows only the names of queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from bullmq import Job, Queue

QUEUE: Final = "courier-events-main"
JOB_NAME: Final = "courier-event"

T = TypeVar("T")


def add(redis_url: str, data: Mapping[str, Any], times: int) -> list[str]:
    """Call ``queue.add`` this many times; returns BullMQ's ids."""

    async def added(queue: Queue) -> list[str]:
        return [(await queue.add(JOB_NAME, dict(data))).id for _ in range(times)]

    return asyncio.run(_with_queue(redis_url, QUEUE, added))


def states(redis_url: str, job_ids: Sequence[str]) -> list[str]:
    """``job.getState`` of each job."""

    async def looked_up(queue: Queue) -> list[str]:
        return [await (await Job.fromId(queue, job_id)).getState() for job_id in job_ids]

    return asyncio.run(_with_queue(redis_url, QUEUE, looked_up))


def waiting(redis_url: str, name: str) -> list[Mapping[str, Any]]:
    """``queue.getWaiting``: the data of the waiting jobs of this queue, oldest first."""

    async def found(queue: Queue) -> list[Mapping[str, Any]]:
        return [job.data for job in await queue.getJobs(["waiting"], asc=True)]

    return asyncio.run(_with_queue(redis_url, name, found))


async def _with_queue(redis_url: str, name: str, use: Callable[[Queue], Awaitable[list[T]]]) -> list[T]:
    queue = Queue(name, {"connection": redis_url})
    try:
        return await use(queue)
    finally:
        await queue.close()
