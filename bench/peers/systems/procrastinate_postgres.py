"""Procrastinate on PostgreSQL: one process, 50 jobs at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import procrastinate

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=plan()["postgres"]))


@app.task(name="noop")
async def noop(job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


async def prepare() -> None:
    """Make the tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """A pool of connections that submits."""
    async with app.open_async():
        yield lambda number: noop.defer_async(job=content(number))
