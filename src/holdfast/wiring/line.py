"""The transport of one connection: what is written is counted, and a client that does not read is found (I18)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any, Final

from .connection_limits import ConnectionLimits

_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: on, and no time."""


class Line(asyncio.Transport):
    """The transport, as uvicorn gets it: it counts what is written, and can close so that the answer is read."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._written = 0
        self.closing = False
        """Whether nothing is written any more."""
        self._window: tuple[float, int] | None = None
        self.lingers = False
        """Whether to drop what the client still sends for a moment, instead of closing at once."""

    def write(self, data: Any) -> None:  # noqa: ANN401 - bytes of any kind
        """Write, and count."""
        if not self.closing:
            self._written += len(data)
            self._transport.write(data)

    def close(self) -> None:
        """Close; the client can still read what was written."""
        if self.closing:
            return
        self.closing = True
        if self.lingers and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()

    def finish(self) -> None:
        """End the lingering."""
        self.closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close at once, with a reset: otherwise the kernel would keep what the client does not read."""
        self.closing = True
        own = self.get_extra_info("socket")
        if own is not None:
            with contextlib.suppress(OSError):  # it is closed already
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing is written any more."""
        return self.closing or self._transport.is_closing()

    def is_stalled(self, now: float, late: float, limits: ConnectionLimits) -> bool:
        """Whether the client reads the answers too slowly. The ``late`` seconds do not count."""
        waiting = self._transport.get_write_buffer_size()
        if not waiting:
            self._window = None
            return False
        read = self._written - waiting
        if self._window is None:
            self._window = (now - late, read)
        since, before = self._window
        since += late
        if now - since < limits.stall:
            self._window = (since, before)
            return False
        self._window = (now, read)
        return read - before < limits.rate * limits.stall

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """See asyncio."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """See asyncio."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio."""
        self._transport.resume_reading()
