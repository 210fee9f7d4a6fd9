"""PGQueuer on PostgreSQL: one process, 50 jobs at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.counter import count_one
from bench.peers.plan import AT_ONCE, content, plan


async def prepare() -> None:
    """Make the tables."""
    connection = await asyncpg.connect(plan()["postgres"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def work() -> None:
    """Work for ever; what ``pgq run`` does, which fails with the typer of today."""
    connection = await asyncpg.connect(plan()["postgres"])
    pgq = PgQueuer(AsyncpgDriver(connection))

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        json.loads(job.payload or b"")
        count_one()

    await pgq.run(batch_size=AT_ONCE)


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """A pool of connections that submits."""
    async with asyncpg.create_pool(plan()["postgres"]) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        yield lambda number: queries.enqueue("noop", json.dumps(content(number)).encode())


if __name__ == "__main__":
    asyncio.run(work())
