"""How a racer and the race talk: one line of JSON each way, so that nothing but the run itself is timed.

The race sends a plan; the racer connects, warms up and says ``{"ready": true}``; the race sends a line when it wants
the run to begin; the racer answers with its figures and ends. ``node.mjs`` speaks the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

Run = Callable[[], Awaitable[None]]


def read_plan() -> dict[str, Any]:
    """What to do."""
    plan: dict[str, Any] = json.loads(sys.stdin.readline())
    return plan


async def timed(run: Run) -> None:
    """Say that we are ready, wait for the word, run, and tell how long it took."""
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    started, used = time.perf_counter(), time.process_time()
    await run()
    figures = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - used}
    print(json.dumps(figures), flush=True)


def race(main: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Run a racer to its end."""

    async def whole() -> None:
        await main(read_plan())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
