"""Requests that are answered without ASGI and without a task of their own: see :class:`holdfast.api.asgi.Shortcut`.

A task, its events and the messages of ASGI cost more than all that the courier intake does with a request. So a request
in the usual form (POST, a short body of a known length, nothing else under way on its connection) goes straight from
the parser to its endpoint, and the answer straight to the transport, in one piece. All limits of the connection hold as
for every other request. A request in any other form goes through ASGI.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, Protocol

from holdfast.api.asgi import CONTENT_LENGTH, Headers, Shortcut
from holdfast.telemetry import emit_failure, events

MOST_BYTES: Final = 64 * 1024
"""The largest body of a short request. uvicorn holds a client with a larger body back until the app reads."""

_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


def length_of(headers: Headers) -> int | None:
    """The length that the request declares."""
    for name, value in headers:
        if name == CONTENT_LENGTH:
            return int(value) if value.isdigit() else None
    return None


class _Unheard:
    """An event that nobody waits for."""

    @staticmethod
    def set() -> None:
        """Do nothing."""


class Outlet(Protocol):
    """The connection of a short request."""

    loop: asyncio.AbstractEventLoop

    def common_headers(self) -> tuple[bytes, bool]:
        """The headers that all answers have, as bytes; and whether every answer is the last of its connection."""
        ...

    def send_short(self, answer: bytes, *, last: bool) -> None:
        """Write the whole answer; if it is the last of the connection, close our half after it."""
        ...


class ShortRequest:
    """One such request. For uvicorn it is the present cycle of the connection: it has what uvicorn reads of a cycle."""

    __slots__ = (
        "_headers",
        "_outlet",
        "_pieces",
        "_shortcut",
        "_starting",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
    )

    message_event = _Unheard()
    waiting_for_100_continue = False

    def __init__(self, outlet: Outlet, shortcut: Shortcut, headers: Headers, *, keep_alive: bool) -> None:
        self._outlet = outlet
        self._shortcut = shortcut
        self._headers = headers
        self._pieces: list[bytes] = []
        self._starting = False
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_started = False
        self.response_complete = False

    def add(self, piece: bytes) -> None:
        """Part of the body has arrived."""
        self._pieces.append(piece)

    def start(self) -> None:
        """The body is complete. The answer comes later, never from inside this call: the parser is still at work."""
        pieces, self._pieces = self._pieces, []
        self._starting = True
        self._shortcut.take(self._headers, pieces[0] if len(pieces) == 1 else b"".join(pieces), self._reply)
        self._starting = False

    def _reply(self, status: int, body: bytes, trace_id: str, headers: Headers = ()) -> None:
        """See :class:`holdfast.api.asgi.Reply`."""
        if self._starting:
            self._outlet.loop.call_soon(self._send, status, body, trace_id, headers)
        else:
            self._send(status, body, trace_id, headers)

    def _send(self, status: int, body: bytes, trace_id: str, headers: Headers) -> None:
        if self.disconnected or self.response_complete:
            return
        try:
            common, leaving = self._outlet.common_headers()
            last = leaving or not self.keep_alive
            more = b"".join([b"%s: %s\r\n" % header for header in headers]) if headers else b""
            head = b"%s%scontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %s\r\n%s%s\r\n" % (
                _STATUS_LINES[status],
                common,
                len(body),
                trace_id.encode("ascii"),
                more,
                b"connection: close\r\n" if last else b"",
            )
            self.response_started = self.response_complete = True
            self._outlet.send_short(head + body, last=last)
        except Exception as error:  # noqa: BLE001 - one connection must not stop the answers of the others
            emit_failure(events.API_UNEXPECTED, error, trace_id=trace_id)
