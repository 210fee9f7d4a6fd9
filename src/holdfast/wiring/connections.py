"""All connections of a process: what they share, and the sweep that ends those that break a limit (I18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from holdfast.api.asgi import Shortcut
from holdfast.telemetry import emit_failure, events

from .connection_limits import ConnectionCount, ConnectionLimits

if TYPE_CHECKING:  # each connection knows this module
    from .connection import Connection

_LONGEST_SWEEP: Final = 1.0


class Connections:
    """The open connections of this process, and the sweep that ends those that break a limit."""

    def __init__(
        self,
        limits: ConnectionLimits,
        new_trace_id: Callable[[], str],
        shortcuts: Mapping[bytes, Shortcut] = MappingProxyType({}),
    ) -> None:
        self.limits = limits
        self.shortcuts = shortcuts
        self.leaving = False
        """Whether the process is about to stop: every answer is the last of its connection."""
        self.count = ConnectionCount(limits)
        self.new_trace_id = new_trace_id
        self.open: set[Connection] = set()
        self.beyond = 0
        self._common: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def frame(self, default_headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bool]:
        """The headers of all answers, which uvicorn renews once a second, as bytes; and whether the process stops."""
        if self._common[0] is not default_headers:
            self._common = (default_headers, b"".join([b"%s: %s\r\n" % each for each in default_headers]))
        return self._common[1], self.leaving

    async def sweep(self) -> None:
        """End connections that break a limit, for ever."""
        loop = asyncio.get_running_loop()
        interval = min(_LONGEST_SWEEP, self.limits.shortest / 4)
        last = loop.time()
        while True:
            await asyncio.sleep(interval)
            now = loop.time()
            await _read_what_has_arrived()
            passed, last = now - last, now
            late = max(0.0, passed - interval)
            for each in list(self.open):
                try:
                    each.look(now, passed, late)
                except Exception as error:  # noqa: BLE001 - no connection may stop the watch over the others
                    emit_failure(events.API_UNEXPECTED, error)
                    each.transport.abort()

    def stop_lingering(self) -> None:
        """The process stops: do not wait for clients that were refused."""
        for each in list(self.open):
            each.stop_lingering()


async def _read_what_has_arrived() -> None:
    """Let the loop read all sockets once.

    Where the loop was busy for longer than a limit, a complete request may wait to be read: that client is not late.
    Tasks that are ready run before the sockets are read, so one round is not enough.
    """
    for _ in range(2):
        await asyncio.sleep(0)
