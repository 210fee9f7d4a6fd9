"""One connection of a client: uvicorn's protocol, held to limits (I18).

uvicorn parses, calls the app and writes its answers. It waits for ever for a header, for a body and for a client that
does not read, and takes headers of any size. Here each connection always has a phase, and each phase has a limit. A
sweep looks at all connections once a second: that costs a request nothing, unlike a timer for each phase.

What is refused at this level gets the same JSON as any other error. Then our half of the connection is closed, and what
the client still sends is read and dropped for a moment: a connection that is closed with unread data is reset, and the
client would never see why it was refused.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from holdfast.api.errors import Code, Refusal
from holdfast.contracts.admission import ErrorCode
from holdfast.telemetry import refused

from .connection_limits import HEADER_BYTES, HEADER_COUNT, PIPELINED, URL_BYTES, sender_of
from .connections import Connections
from .line import Line
from .short_requests import MOST_BYTES, ShortRequest, length_of

_LINGER: Final = 2.0
"""Seconds that a refused client has for reading the answer, while what it sends is dropped."""
_MOST_BEYOND: Final = 64
"""Connections beyond the limit that get an answer at the same time. Others are closed without one."""
_PIECE: Final = 16 * 1024
"""While a header arrives, the parser gets no more at a time: it keeps what is not complete."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]{0,255}")


class _Phase(Enum):
    """What the client is to do next."""

    BEGIN = auto()
    """Send a request, or nothing: no byte of a request has come since the last one."""
    HEADER = auto()
    BODY = auto()
    DONE = auto()
    """The request is complete. The client waits for the answer, or already sends the next request."""


class _Broken(Exception):
    """A request that is refused, raised in a callback of the parser."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol for one connection. What it uses of uvicorn is listed in tests/unit/test_connection.py."""

    def __init__(self, connections: Connections, **of_uvicorn: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**of_uvicorn)
        self._all = connections
        self._limits = connections.limits
        self._line: Line
        self._sender = b""
        self._counted = False
        self._phase = _Phase.BEGIN
        self._since = 0.0
        """When the phase began; in a body: when the present ``stall`` began."""
        self._first = True
        self._moved = 0
        """Bytes of the body in the present ``stall``."""
        self._withheld = 0
        """Bytes that the parser got and that were neither a complete header nor part of a body."""
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._refusal: Refusal | None = None
        self._bound = ""
        self._deaf = False
        """Whether what the client sends is dropped."""
        self._ended = False
        """Whether uvicorn was told that the connection is lost."""
        self._linger_end = 0.0
        self._short: ShortRequest | None = None
        """The request whose body is arriving, if it is a short one."""

    # --- the transport calls ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Count the connection, or refuse it."""
        self._line = Line(transport)
        self._since = self.loop.time()
        super().connection_made(self._line)
        self._all.open.add(self)
        self._sender = sender_of(self.client[0]) if self.client else b""
        bound = self._all.count.add(self._sender)
        if bound is None:
            self._counted = True
        elif self._all.beyond < _MOST_BEYOND:
            self._all.beyond += 1
            self._refuse(Code.TOO_MANY_CONNECTIONS, bound)
        else:
            self._all.beyond += 1
            refused(bound)
            self._line.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request that is not answered, not only the last one as uvicorn does."""
        self._all.open.discard(self)
        if self._counted:
            self._all.count.remove(self._sender)
        else:
            self._all.beyond -= 1
        self._end(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, or drop, what the client sent."""
        while data and not self._deaf and not self._line.closing:
            if len(data) > _PIECE and self._phase is not _Phase.BODY:
                piece, data = data[:_PIECE], data[_PIECE:]
            else:
                piece, data = data, b""
            phase, moved = self._phase, self._moved
            super().data_received(piece)
            if self._phase is _Phase.DONE or self._deaf:
                continue
            if self._phase is phase and self._moved == moved:
                self._withheld += len(piece)
                self._look_at_header()
            else:
                self._withheld = 0

    def _look_at_header(self) -> None:
        """Refuse a header that is too large before it is complete; or trailers, or the frame around a body."""
        if self._phase is _Phase.HEADER and len(self.url) > URL_BYTES:
            self._refuse(Code.URI_TOO_LONG, "url_bytes")
        elif self._withheld > HEADER_BYTES:
            self._refuse(Code.HEADER_TOO_LARGE, "header_bytes")

    # --- the parser calls ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins. The time for the first header began with the connection."""
        super().on_message_begin()
        self._phase = _Phase.HEADER
        if not self._first:
            self._since = self.loop.time()
        self._first = False
        self._withheld = 0

    def on_headers_complete(self) -> None:
        """The header is complete: uvicorn starts the app."""
        if len(self._unanswered) >= PIPELINED:
            self._break(Code.TOO_MANY_REQUESTS, "pipelined_requests", "Too many requests wait on this connection.")
        if len(self.url) > URL_BYTES:
            self._break(Code.URI_TOO_LONG, "url_bytes")
        if len(self.headers) > HEADER_COUNT:
            self._break(Code.HEADER_TOO_LARGE, "header_count")
        upgrade = self.parser.should_upgrade()
        if sum([len(name) + len(value) + 4 for name, value in self.headers]) > HEADER_BYTES:
            self._break(Code.HEADER_TOO_LARGE, "header_bytes")
        if (problem := _framing_problem(self.headers, self.parser.get_http_version(), upgrade=upgrade)) is not None:
            self._break(Code.MALFORMED_REQUEST, "malformed_request", problem)
        self._short = None if upgrade else self._short_request()
        if self._short is None:
            super().on_headers_complete()
        else:
            self.cycle = cast("RequestResponseCycle", self._short)
        self.headers = []  # uvicorn would add trailers to the headers of a request that is being answered
        self._unanswered.append(self.cycle)
        self._phase = _Phase.BODY
        self._since = self.loop.time()
        self._moved = 0
        self._line.lingers = True
        if upgrade:
            # The parser takes what follows for another protocol, which we do not speak: this is the last request.
            self.cycle.keep_alive = False
            self._deaf = True

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._moved += len(body)
        if self._short is not None:
            self._short.add(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._line.lingers = self._deaf
        self._wait_for_the_next()
        if self._short is not None:
            self._short.start()
        else:
            super().on_message_complete()

    def _short_request(self) -> ShortRequest | None:
        """The request whose header is complete, if a shortcut can answer it; None: it goes through ASGI."""
        shortcut = self._all.shortcuts.get(self.url)
        if shortcut is None or self._unanswered or self.expect_100_continue or self.flow.write_paused:
            return None
        length = length_of(self.headers)
        if length is None or length > min(shortcut.most_bytes, MOST_BYTES) or self.parser.get_method() != b"POST":
            return None
        keeps = self.parser.should_keep_alive() and self.parser.get_http_version() == "1.1"
        return ShortRequest(self, shortcut, self.headers, keep_alive=keeps)

    def send_400_response(self, msg: str) -> None:
        """The parser did not take the request, or one of our callbacks did not."""
        del msg
        if self._refusal is None:
            self._refuse(Code.MALFORMED_REQUEST, "malformed_request")
        else:
            self._refuse_after_the_others()

    # --- answers ------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """An answer is complete. The next request of the connection starts, or is waited for."""
        if self._unanswered:
            self._unanswered.popleft()
        self._since = self.loop.time()
        if self.pipeline:
            super().on_response_complete()
        elif not self._line.is_closing():  # uvicorn would set a timer here; the sweep ends idle connections
            self.flow.resume_reading()
        if self._phase is _Phase.DONE:
            self._wait_for_the_next()
        if self._refusal is not None:
            self._refuse_after_the_others()

    def common_headers(self) -> tuple[bytes, bool]:
        """See :class:`~.short_requests.Outlet`."""
        return self._all.frame(self.server_state.default_headers)

    def send_short(self, answer: bytes, *, last: bool) -> None:
        """See :class:`~.short_requests.Outlet`."""
        self._line.write(answer)
        if last:
            self._line.close()
        self.on_response_complete()

    def _wait_for_the_next(self) -> None:
        """The request is complete, or its answer. When both are, the connection is idle."""
        self._phase = _Phase.DONE if self._unanswered else _Phase.BEGIN
        self._since = self.loop.time()

    def _break(self, code: ErrorCode, bound: str, message: str | None = None) -> None:
        """Refuse the request whose header the parser is reading. The parser stops, and uvicorn asks for the answer."""
        self._refusal, self._bound = Refusal(code, message), bound
        raise _Broken

    def _refuse(self, code: ErrorCode, bound: str, message: str | None = None) -> None:
        self._refusal, self._bound = Refusal(code, message), bound
        self._refuse_after_the_others()

    def _refuse_after_the_others(self) -> None:
        """Answer with the refusal, as soon as all requests before it have their answers."""
        if self._refusal is None or self._ended:
            return
        if not self._deaf:
            self._deaf = True
            refused(self._bound)
        own = self.cycle if self._phase is _Phase.BODY else None
        if any(each is not own for each in self._unanswered):
            return
        if own is not None and own.response_started and not own.response_complete:
            self._line.abort()  # half of an answer was sent: a second one would look like the rest of it
        else:
            if own is None or not own.response_started:
                self._line.write(self._raw(self._refusal))
            self._line.lingers = True
            self.flow.resume_reading()
        self._end(None)

    def _raw(self, refusal: Refusal) -> bytes:
        trace_id = self._all.new_trace_id()
        body = refusal.body(trace_id)
        status = HTTPStatus(refusal.status)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            *(f"{name.decode()}: {value.decode()}" for name, value in self.server_state.default_headers),
            "content-type: application/json",
            f"content-length: {len(body)}",
            f"x-request-id: {trace_id}",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            *(f"{name}: {value}" for name, value in refusal.headers.items()),
            "connection: close",
            "",
            "",
        ]
        return "\r\n".join(lines).encode() + body

    def _end(self, exc: Exception | None) -> None:
        """End all requests; for uvicorn, the connection is lost."""
        if self._ended:
            return
        self._ended = self._deaf = True
        for each in self._unanswered:
            each.disconnected = True
            each.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

    # --- the sweep calls ----------------------------------------------------------------------------------

    def look(self, now: float, passed: float, late: float) -> None:
        """End the connection if it breaks a limit. All that arrived before ``now`` has been read.

        The last look was ``passed`` seconds ago. In ``late`` of them the process was busy, and nothing could move.
        """
        if self._line.is_stalled(now, late, self._limits):
            refused("answer_stalled")
            self._line.abort()
        elif self._line.is_closing():
            if self._linger_end == 0.0:
                self._linger_end = now + _LINGER
            elif now >= self._linger_end:
                self._line.finish()
        elif self._deaf:
            return
        elif self.flow.read_paused or (self._unanswered and self._unanswered[-1].waiting_for_100_continue):
            self._since += passed  # the client waits for us
        else:
            if self._phase is _Phase.BODY:
                self._since += late
            self._look_at_phase(now - self._since)

    def stop_lingering(self) -> None:
        """The process stops."""
        if self._line.is_closing():
            self._line.finish()

    def _look_at_phase(self, lasted: float) -> None:
        match self._phase:
            case _Phase.BEGIN if lasted >= (self._limits.header if self._first else self._limits.idle):
                if self._first:
                    refused("header_timeout")
                self._line.close()
            case _Phase.HEADER if lasted >= self._limits.header:
                self._refuse(Code.REQUEST_TIMEOUT, "header_timeout", "The header did not arrive in time.")
            case _Phase.BODY if lasted >= self._limits.stall:
                enough = self._moved >= self._limits.rate * self._limits.stall
                if enough and self._unanswered:
                    self._since += lasted
                    self._moved = 0
                else:
                    self._refuse(Code.REQUEST_TIMEOUT, "body_timeout", "The body did not arrive fast enough.")
            case _:
                pass


def _framing_problem(headers: list[tuple[bytes, bytes]], version: str, *, upgrade: bool) -> str | None:
    """Why it is not certain where the request ends or whom it is for; None if all is well (RFC 9112, 3.2 and 6.1)."""
    hosts, codings, lengths = [], [], []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
        elif name == b"content-length":
            lengths.append(value)
    problem = None
    if version not in {"1.0", "1.1"}:
        problem = "Only HTTP/1.0 and HTTP/1.1 are spoken here."
    elif len(hosts) > 1 or (not hosts and version == "1.1") or (hosts and _HOST.fullmatch(hosts[0]) is None):
        problem = "There must be one valid Host header."
    elif codings and (version == "1.0" or lengths or codings != [b"chunked"]):
        problem = "Transfer-Encoding can only be chunked, only in HTTP/1.1, and not with a Content-Length."
    elif len(lengths) > 1:
        problem = "Content-Length must come once."
    elif upgrade and (codings or lengths not in ([], [b"0"])):
        problem = "A request with Upgrade cannot have a body here."
    return problem
