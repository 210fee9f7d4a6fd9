"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

_LONGEST = 60.0
_POLL = 0.005


async def eventually(condition: Callable[[], Any], *, within: float = _LONGEST) -> Any:
    """Poll ``condition`` (a function or a coroutine function) until it is truthy, and return what it said.

    The deadline is there so that a broken program fails instead of hanging; no test depends on its length.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while True:
        began = loop.time()
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if loop.time() > end:
            message = f"did not become true within {within} s: {inspect.getsource(condition).strip()}"
            raise AssertionError(message)
        # Whoever is waited for needs the processor too: looking takes no more than half of the time.
        await asyncio.sleep(max(_POLL, loop.time() - began))
