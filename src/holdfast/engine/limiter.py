"""Limits that all processes share: the handlers of one process acquire their permits together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.ports import Broker
from holdfast.contracts.queues import RateLimit

from .group_commit import GroupCommit

_MOST_IN_ONE_CALL: Final = 1000
_SHORTEST: Final = timedelta(milliseconds=2)
_LONGEST: Final = timedelta(milliseconds=250)


class Limiter:
    """Gives permits to the handlers of one process, for any number of names.

    ``hold`` is longer than a handler may keep a permit. After that time, the permits of a crashed process are free.
    """

    def __init__(self, broker: Broker, hold: timedelta) -> None:
        self._broker = broker
        self._hold = hold
        self._limits: dict[tuple[str, RateLimit], _Limit] = {}

    @contextlib.asynccontextmanager
    async def limit(self, name: str, rate: RateLimit) -> AsyncIterator[None]:
        """Wait for a permit, and keep it in the body. Raises :class:`BrokerUnavailable` if the queue is away."""
        limit = self._limits.get((name, rate))
        if limit is None:
            limit = self._limits[name, rate] = _Limit(self._broker, name, rate, self._hold)
        permit = await limit.enter()
        try:
            yield
        finally:
            limit.used.add(permit)

    @property
    def waiting(self) -> int:
        """How many handlers wait for a permit that the queue does not have now."""
        return sum(limit.wanted() for limit in self._limits.values() if limit.resting)

    def look_again(self) -> None:
        """Ask for the permits of those that wait at once, and not after the wait that the queue named."""
        for limit in self._limits.values():
            limit.look_again()

    async def settle(self) -> None:
        """Return when every used permit is released."""
        await asyncio.gather(*(limit.used.idle() for limit in self._limits.values()))


class _Limit:
    """One limit: the handlers that wait for a permit, and the used permits."""

    def __init__(self, broker: Broker, name: str, rate: RateLimit, hold: timedelta) -> None:
        self._broker = broker
        self._name = name
        self._rate = rate
        self._hold = hold
        self._waiting: list[asyncio.Future[str]] = []
        self._acquiring: asyncio.Task[None] | None = None
        self.used = GroupCommit(_MOST_IN_ONE_CALL, self._release)
        self.resting = False
        self._rest_is_over = asyncio.Event()

    async def enter(self) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if self._acquiring is None:
            self._acquiring = asyncio.create_task(self._acquire())
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self.used.add(answer.result())
            raise

    async def _acquire(self) -> None:
        try:
            while self.wanted():
                permits = await self._broker.acquire(self._name, self._rate, self.wanted(), hold=self._hold)
                for permit in permits.given:
                    waiting = next((each for each in self._waiting if not each.done()), None)
                    if waiting is None:  # the handlers were cancelled meanwhile
                        self.used.add(permit)
                    else:
                        self._waiting.remove(waiting)
                        waiting.set_result(permit)
                if self.wanted():
                    await self._rest(permits.wait)
        except Exception as error:  # noqa: BLE001 - raised in every handler that waits
            waiting_now, self._waiting = self._waiting, []
            for each in waiting_now:
                if not each.done():
                    each.set_exception(error)
        finally:
            self._acquiring = None

    async def _rest(self, wait: timedelta) -> None:
        self.resting = True
        self._rest_is_over.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(wait, _SHORTEST), _LONGEST).total_seconds()):
                await self._rest_is_over.wait()
        self.resting = False

    def look_again(self) -> None:
        self.resting = False
        self._rest_is_over.set()

    def wanted(self) -> int:
        self._waiting = [each for each in self._waiting if not each.done()]
        return len(self._waiting)

    async def _release(self, permits: Sequence[str]) -> None:
        with contextlib.suppress(BrokerUnavailable):  # the permits are free again after ``hold``
            await self._broker.release(self._name, self._rate, permits)
