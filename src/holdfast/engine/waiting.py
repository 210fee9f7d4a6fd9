"""Waiting for the end of jobs: all waits of a process share one poll of the ledger.

A job that a worker of this process ends wakes its waits at once (:meth:`Waiting.notify`). A job that ends elsewhere is
found by the poll: every 250 ms, one read for 500 keys of a workload. So a thousand waits cost about as many reads as
one. The poll runs only while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ports import Ledger
from holdfast.telemetry import emit, emit_failure, events

_POLL_EVERY: Final = timedelta(milliseconds=250)
_MOST_IN_ONE_READ: Final = 500

_Wait = asyncio.Future[bool]


class Waiting:
    """The waits of one process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waits: dict[str, dict[str, set[_Wait]]] = {}
        """By workload and key."""
        self._polling: asyncio.Task[None] | None = None
        self._stopped = False

    async def until_ended(self, workload: str, key: str, timeout: timedelta) -> bool:  # noqa: ASYNC109 - the poll is shared
        """Wait until the job has ended. False: it has not, but the time is over, or the process is about to stop.

        A key that the ledger does not have never ends.
        """
        if self._stopped or timeout <= timedelta(0):
            return key in await self._ledger.ended(workload, [key])
        wait: _Wait = asyncio.get_running_loop().create_future()
        self._waits.setdefault(workload, {}).setdefault(key, set()).add(wait)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await wait
        except TimeoutError:
            return False
        finally:
            self._forget(workload, key, wait)

    def notify(self, workload: str, keys: Sequence[str]) -> None:
        """These jobs have ended: whoever waits for them goes on."""
        waits = self._waits.get(workload)
        for key in keys if waits else ():
            for wait in (waits or {}).get(key, ()):
                if not wait.done():
                    wait.set_result(True)

    def stop(self) -> None:
        """The process is about to stop: all waits end now, and no new ones begin."""
        self._stopped = True
        for waits in self._waits.values():
            for wait in (each for some in waits.values() for each in some):
                if not wait.done():
                    wait.set_result(False)

    def _forget(self, workload: str, key: str, wait: _Wait) -> None:
        waits = self._waits[workload]
        waits[key].discard(wait)
        if not waits[key]:
            del waits[key]
        if not waits:
            del self._waits[workload]
        if not self._waits and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self) -> None:
        while True:
            try:
                for workload, keys in list(self._open()):
                    self.notify(workload, await self._ledger.ended(workload, keys))
            except StoreUnavailable as error:  # those who wait go on waiting
                emit(events.STORE_UNAVAILABLE, where="waiting", reason=error.message)
            except Exception as error:  # noqa: BLE001 - an error of one poll must not end all waiting
                emit_failure(events.STORE_UNAVAILABLE, error, where="waiting")
            await asyncio.sleep(_POLL_EVERY.total_seconds())

    def _open(self) -> Iterator[tuple[str, list[str]]]:
        """The keys that somebody waits for, in the portions of one read."""
        for workload, waits in self._waits.items():
            keys = list(waits)
            for start in range(0, len(keys), _MOST_IN_ONE_READ):
                yield workload, keys[start : start + _MOST_IN_ONE_READ]
