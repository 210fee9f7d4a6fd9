"""The two clients behind one interface: each test runs with both."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from holdfast.client import AsyncClient, Client, Retries, Timing

KEY = "hf_a-secret-key-of-the-tests"
TOKEN = "a secret token of the tests"
START = 1_790_000_000.0


class Caller:
    """Calls a verb of a new client, and returns its result; of an iterator, all items.

    The clock is the test's: the client's waits are kept, and nobody waits. Or all is in ``real_time``.
    """

    def __init__(self, address: str, *, real_time: bool = False, chance: float = 0.0, **options: Any) -> None:
        self.address = address
        self.now = START
        self.waits: list[float] = []
        self.real_time = real_time
        timing = Timing(monotonic=lambda: self.now, now=lambda: self.now, chance=lambda: chance)
        self.options = {
            "key": KEY,
            "token": TOKEN,
            "timing": Timing() if real_time else timing,
            "retries": Retries(most=3),
        } | options

    def call(self, verb: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def _keep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class BlockingCaller(Caller):
    def call(self, verb: Callable[[Any], Any]) -> Any:
        with Client(self.address, sleep=time.sleep if self.real_time else self._keep, **self.options) as client:
            found = verb(client)
            return list(found) if inspect.isgenerator(found) else found


class AsyncCaller(Caller):
    def call(self, verb: Callable[[Any], Any]) -> Any:
        async def keep(seconds: float) -> None:
            self._keep(seconds)

        async def called() -> Any:
            sleep = asyncio.sleep if self.real_time else keep
            async with AsyncClient(self.address, sleep=sleep, **self.options) as client:
                found = verb(client)
                return [each async for each in found] if inspect.isasyncgen(found) else await found

        return asyncio.run(called())


CALLERS = {"blocking": BlockingCaller, "async": AsyncCaller}
