"""Turns at what all processes share a limit of: handlers of one process ask for theirs together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.ports import Broker
from holdfast.contracts.queues import RateLimit

_SHORTEST: Final = timedelta(milliseconds=2)
_LONGEST: Final = timedelta(milliseconds=250)


class Limiter:
    """Hands out turns inside one process, for any number of names.

    ``hold`` is longer than anybody may keep a turn; it frees those of a process that died.
    """

    def __init__(self, broker: Broker, hold: timedelta) -> None:
        self._broker = broker
        self._hold = hold
        self._gates: dict[tuple[str, RateLimit], _Limit] = {}

    @asynccontextmanager
    async def limit(self, name: str, rate: RateLimit) -> AsyncIterator[None]:
        """Wait for a turn, and hold it inside. Raises :class:`BrokerUnavailable` when there is nobody to ask."""
        gate = self._gates.get((name, rate))
        if gate is None:
            gate = self._gates[name, rate] = _Limit(self._broker, name, rate, self._hold)
        given = await gate.enter()
        try:
            yield
        finally:
            gate.leave(given)

    async def settle(self) -> None:
        """Return when every turn that was given back is back."""
        await asyncio.gather(*(gate.idle() for gate in self._gates.values()))


class _Limit:
    """One name's waiting handlers, and the turns that they are done with."""

    def __init__(self, broker: Broker, name: str, rate: RateLimit, hold: timedelta) -> None:
        self._broker = broker
        self._name = name
        self._rate = rate
        self._hold = hold
        self._waiting: list[asyncio.Future[str]] = []
        self._used: list[str] = []
        self._asking: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None

    async def enter(self) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self.leave(answer.result())
            raise

    def leave(self, permit: str) -> None:
        self._used.append(permit)
        if self._returning is None:
            self._returning = asyncio.create_task(self._give_back())

    async def idle(self) -> None:
        while self._returning is not None:
            await asyncio.wait({self._returning})

    async def _ask(self) -> None:
        try:
            while self._wanted():
                permits = await self._broker.acquire(self._name, self._rate, self._wanted(), hold=self._hold)
                for permit in permits.given:
                    waiting = next((each for each in self._waiting if not each.done()), None)
                    if waiting is None:  # they gave up while we asked
                        self.leave(permit)
                    else:
                        self._waiting.remove(waiting)
                        waiting.set_result(permit)
                if self._wanted():
                    await asyncio.sleep(min(max(permits.wait, _SHORTEST), _LONGEST).total_seconds())
        except Exception as error:  # noqa: BLE001 - told to everybody who waits
            waiting_now, self._waiting = self._waiting, []
            for each in waiting_now:
                if not each.done():
                    each.set_exception(error)
        finally:
            self._asking = None

    def _wanted(self) -> int:
        self._waiting = [each for each in self._waiting if not each.done()]
        return len(self._waiting)

    async def _give_back(self) -> None:
        try:
            while self._used:
                used, self._used = self._used, []
                try:
                    await self._broker.release(self._name, self._rate, used)
                except BrokerUnavailable:
                    continue  # they come free by themselves when their time is over
        finally:
            self._returning = None
