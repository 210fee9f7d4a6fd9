"""Waiting for conditions, never for time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

_LONGEST = 120.0
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1


async def eventually(condition: Callable[[], Any], *, within: float = _LONGEST) -> Any:
    """Poll ``condition`` (a function or a coroutine function) until it is truthy, and return what it said.

    What is waited for needs the processor too. So this looks ever less often, and looking takes no more than a quarter
    of the time.

    The deadline is there so that a broken program fails instead of hanging; no test depends on its length.
    """
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + within, _FIRST_PAUSE
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
        await asyncio.sleep(max(pause, min(3 * (loop.time() - began), 1.0)))
        pause = min(pause * 1.2, _LONGEST_PAUSE)
