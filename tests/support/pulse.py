"""A neighbour who asks ``/health`` every 20 ms over a socket of its own while somebody attacks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

PATIENCE: Final = 5.0 if "HOLDFAST_ATTACK_ROUNDS" in os.environ else 15.0
"""Seconds. An attack that works stops a service for longer; a machine that runs other tests beside this one does not.

``make attack`` aims at 0.25.
"""

_EVERY: Final = 0.02
_NEIGHBOUR: Final = "127.0.0.2"
"""Another address than the attacker's, so that limits for each address do not concern it."""
_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: holdfast\r\nConnection: close\r\n\r\n"


@dataclass
class Pulse:
    """How long the answers took, in seconds."""

    waits: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max(self.waits, default=0.0)


@contextlib.asynccontextmanager
async def pulse(port: int, *, patience: float = PATIENCE) -> AsyncIterator[Pulse]:
    """Ask until the block ends. Every answer must be 200, and none may take longer than ``patience``."""
    taken = Pulse()
    ended = asyncio.Event()
    asking = asyncio.create_task(_ask(port, taken, ended, patience))
    try:
        yield taken
    finally:
        ended.set()
        await asking
    assert taken.waits, "nobody asked: nothing was tested"


async def _ask(port: int, taken: Pulse, ended: asyncio.Event, patience: float) -> None:
    clock = asyncio.get_running_loop().time
    while not ended.is_set():
        began = clock()
        async with asyncio.timeout(patience):
            answer = await _once(port)
        taken.waits.append(clock() - began)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        await asyncio.sleep(_EVERY)


async def _once(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(_NEIGHBOUR, 0))
    try:
        writer.write(_REQUEST)
        return await reader.read()
    finally:
        writer.close()
