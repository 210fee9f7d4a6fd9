"""Holdfast: the program ``holdfast worker`` in one process; another process submits with the library."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from bench.peers.counter import count_one
from bench.peers.plan import content
from holdfast import App, Holdfast

app = App()


class Event(BaseModel):
    """About 500 bytes."""

    number: str
    eventType: str  # noqa: N815 - as on the wire
    occurredAt: str  # noqa: N815
    source: str
    payload: dict[str, Any]


@app.job(key="number")
async def noop(event: Event) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


@contextlib.asynccontextmanager
async def connect() -> AsyncIterator[Callable[[int], Awaitable[Any]]]:
    """Holdfast in this process, without its worker."""
    async with Holdfast(app, worker=False, maintenance=False) as hold:
        yield lambda number: hold.submit("noop", content(number))
