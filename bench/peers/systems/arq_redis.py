"""arq: one process. Its defaults (10 jobs at a time, a look every 500 ms) would bound the measurement."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from bench.peers.counter import count_one
from bench.peers.plan import AT_ONCE, content, plan


async def noop(_context: dict[str, Any], job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


class WorkerSettings:
    """What ``arq`` reads."""

    functions: ClassVar = [noop]
    redis_settings = RedisSettings.from_dsn(plan()["redis"])
    max_jobs = AT_ONCE
    poll_delay = 0.01


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """A connection that submits."""
    pool = await create_pool(WorkerSettings.redis_settings)
    yield lambda number: pool.enqueue_job("noop", content(number))
    await pool.aclose()
