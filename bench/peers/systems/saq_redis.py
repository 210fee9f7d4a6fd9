"""SAQ on Redis: one process, 50 jobs at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from saq import Queue

from bench.peers.counter import count_one
from bench.peers.plan import AT_ONCE, content, plan

queue = Queue.from_url(plan()["redis"])


async def noop(_context: Any, *, job: dict[str, Any]) -> None:  # noqa: ANN401, ARG001 - it does nothing
    """Do nothing."""
    count_one()


settings = {"queue": queue, "functions": [noop], "concurrency": AT_ONCE}


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """A connection that submits."""
    await queue.connect()
    yield lambda number: queue.enqueue("noop", job=content(number))
    await queue.disconnect()
