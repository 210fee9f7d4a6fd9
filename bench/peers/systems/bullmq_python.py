"""The Queue and the Worker of PyPI's bullmq: one process, 50 jobs at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bullmq import Queue, Worker

from bench.peers.counter import count_one
from bench.peers.plan import AT_ONCE, content, plan

NAME = "bench"


async def noop(_job: Any, _token: str) -> None:  # noqa: ANN401 - bullmq's
    """Do nothing."""
    count_one()


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """A connection that submits."""
    queue = Queue(NAME, {"connection": plan()["redis"]})
    yield lambda number: queue.add("noop", content(number), {"removeOnComplete": 1000})
    await queue.close()


async def work() -> None:
    """Work for ever."""
    await Worker(NAME, noop, {"connection": plan()["redis"], "concurrency": AT_ONCE, "autorun": False}).run()


if __name__ == "__main__":
    asyncio.run(work())
