"""What the event loop's thread does for long: the processor time of every callback (I18)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def watched_loop() -> Iterator[list[tuple[float, str]]]:
    """Collects the milliseconds of each callback of the running loop, and what it was.

    The time of the processor, not of the clock: other programs on the machine do not count.
    """
    seen: list[tuple[float, str]] = []
    original = asyncio.Handle._run  # every callback passes here

    def run(handle: Any) -> None:
        began = time.thread_time()
        original(handle)
        seen.append(((time.thread_time() - began) * 1_000, repr(handle)))

    asyncio.Handle._run = run
    try:
        yield seen
    finally:
        asyncio.Handle._run = original
