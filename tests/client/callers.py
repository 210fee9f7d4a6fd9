"""The two clients behind one interface: each test of the core runs with both, on a clock of the test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.client import AsyncClient, Client, Retries, Timing

KEY = "hf_a-secret-key-of-the-tests"
TOKEN = "a secret token of the tests"
START = 1_790_000_000.0


class Caller:
    """Calls a verb, waits for its result, and keeps the waits of the client instead of waiting."""

    def __init__(self, address: str, *, chance: float = 0.0, **options: Any) -> None:
        self.address = address
        self.now = START
        self.waits: list[float] = []
        self.timing = Timing(monotonic=lambda: self.now, now=lambda: self.now, chance=lambda: chance)
        self.options = {"key": KEY, "token": TOKEN, "timing": self.timing, "retries": Retries(most=3)} | options

    def call(self, verb: Callable[[Any], Any]) -> Any:
        """The result of a verb; of an iterator, all items."""
        raise NotImplementedError

    def slept(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class BlockingCaller(Caller):
    def call(self, verb: Callable[[Any], Any]) -> Any:
        with Client(self.address, sleep=self.slept, **self.options) as client:
            found = verb(client)
            return list(found) if inspect.isgenerator(found) else found


class AsyncCaller(Caller):
    def call(self, verb: Callable[[Any], Any]) -> Any:
        async def sleep(seconds: float) -> None:
            self.slept(seconds)

        async def called() -> Any:
            async with AsyncClient(self.address, sleep=sleep, **self.options) as client:
                found = verb(client)
                return [each async for each in found] if inspect.isasyncgen(found) else await found

        return asyncio.run(called())


CALLERS = {"blocking": BlockingCaller, "async": AsyncCaller}
