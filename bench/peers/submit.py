"""Submits jobs to one system: ``python -m bench.peers.submit MODULE``, in a process with the libraries of that system.

One line of JSON comes in (``first``, ``warm``, ``count``). The program connects, submits the warm-up, and says
``{"ready": true}``. After the next line it submits all jobs, and prints how long this took and how much processor time.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from .plan import AT_ONCE


def main() -> None:
    """Prepare, or submit."""
    module = importlib.import_module(sys.argv[1])
    if sys.argv[2:] == ["--prepare"]:
        asyncio.run(module.prepare())
        return
    asked = json.loads(sys.stdin.readline())
    if hasattr(module, "connect"):
        asyncio.run(_together(module, asked))
    else:
        _in_order(module.submit, asked)


def _in_order(submit: Callable[[int], Any], asked: dict[str, int]) -> None:
    """One after the other: the library waits for each answer."""
    numbers = _numbers(asked)
    for number in next(numbers):
        submit(number)
    began = _begin()
    for number in next(numbers):
        submit(number)
    _tell(began)


async def _together(module: Any, asked: dict[str, int]) -> None:  # noqa: ANN401 - a module
    """So many at a time as a web server would."""
    async with module.connect() as submit:
        numbers = _numbers(asked)
        await _all(submit, next(numbers))
        began = await asyncio.to_thread(_begin)
        await _all(submit, next(numbers))
        _tell(began)


async def _all(submit: Callable[[int], Awaitable[Any]], numbers: range) -> None:
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await submit(number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def _numbers(asked: dict[str, int]) -> Iterator[range]:
    first, warm = asked["first"], asked["warm"]
    yield range(first, first + warm)
    yield range(first + warm, first + warm + asked["count"])


def _begin() -> tuple[float, float]:
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    return time.perf_counter(), time.process_time()


def _tell(began: tuple[float, float]) -> None:
    started, used = began
    figures = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - used}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
