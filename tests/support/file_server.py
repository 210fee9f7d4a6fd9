"""A web server on a real socket of this machine: it serves files well or badly, and keeps what it was sent.

    with FileServer() as server:
        server.file("/page.pdf", content)
        server.answers("/hook", status(503), status(200))
        ...server.url("/page.pdf")...

A path that nothing is said about is a 404. Every connection carries one exchange. What hangs or drips ends at the
latest when the server does.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Names of headers are in lower case; ``target`` is the path with its query."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Client:
    """The other end of a connection, as a reply sees it. ``stopping`` is set when the server ends."""

    socket: socket.socket
    stopping: threading.Event

    def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
        self.socket.sendall(("\r\n".join(lines) + "\r\nconnection: close\r\n\r\n").encode())

    def body(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            if self.stopping.is_set():
                return
            self.socket.sendall(chunk)


Reply = Callable[[Client], None]


# --- replies --------------------------------------------------------------------------------------------------


def content(body: bytes, kind: str = "application/octet-stream", **headers: str) -> Reply:
    """The bytes, with their true length."""
    return status(200, body, content_type=kind, **headers)


def status(code: int, body: bytes = b"", **headers: str) -> Reply:
    """``retry_after="7"`` becomes the header ``retry-after: 7``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def reply(client: Client) -> None:
        client.head(code, {"content-length": str(len(body)), **named})
        client.body(body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK))

    return reply


def redirect(to: str, code: int = 302) -> Reply:
    return status(code, location=to)


def undeclared(body: bytes) -> Reply:
    """The bytes without a length: the end of the connection is the end of the file."""

    def reply(client: Client) -> None:
        client.head(200, {"content-type": "application/octet-stream"})
        client.body([body])

    return reply


def declared(length: int, body: bytes = b"") -> Reply:
    """Promises ``length`` bytes and sends others: fewer break off, more are sent all the same."""

    def reply(client: Client) -> None:
        client.head(200, {"content-length": str(length)})
        client.body([body])

    return reply


def endless(chunk: bytes = bytes(_CHUNK)) -> Reply:
    """A body that comes as fast as it is read, and never ends."""

    def reply(client: Client) -> None:
        client.head(200, {"content-type": "application/octet-stream"})
        client.body(itertools.repeat(chunk))

    return reply


def dripping(byte: bytes = b".", every: float = 0.02) -> Reply:
    """A body of one byte now and then, for ever: no single read waits for long."""

    def reply(client: Client) -> None:
        client.head(200, {"content-type": "application/octet-stream"})
        while not client.stopping.wait(every):
            client.socket.sendall(byte)

    return reply


def gzip_bomb(size: int) -> Reply:
    """A small compressed body that unpacks to ``size`` zeros. It is compressed whatever the client accepts."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for start in range(0, size, _CHUNK):
            file.write(bytes(min(_CHUNK, size - start)))
    return content(packed.getvalue(), content_encoding="gzip")


def hang(client: Client) -> None:
    """No answer."""
    client.stopping.wait()


def reset(client: Client) -> None:
    """The connection is broken off before the answer."""
    _abort(client.socket)


def reset_after(body: bytes, length: int) -> Reply:
    """The connection is broken off in the middle of a body of ``length`` bytes."""

    def reply(client: Client) -> None:
        client.head(200, {"content-length": str(length)})
        client.body([body])
        _abort(client.socket)

    return reply


# --- the server -----------------------------------------------------------------------------------------------


class FileServer:
    """Listens on 127.0.0.1 while its context lasts. With ``tls`` it speaks HTTPS."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self._tls = tls
        self._replies: dict[str, list[Reply]] = {}
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept, self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._listener is not None
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    # --- what it serves ---

    def file(self, path: str, body: bytes, kind: str = "application/octet-stream") -> str:
        """Serve these bytes. The URL."""
        return self.answers(path, content(body, kind))

    def answers(self, path: str, *replies: Reply) -> str:
        """Answer requests for ``path`` in this order; the last reply is for all that follow. The URL."""
        self._replies[path] = list(replies)
        return self.url(path)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def port(self) -> int:
        assert self._listener is not None
        return self._listener.getsockname()[1]

    # --- what it saw ---

    def to(self, path: str) -> list[Request]:
        """The requests for this path, in order."""
        with self._changed:
            return [request for request in self.requests if request.path == path]

    def wait_for(self, path: str, count: int = 1, timeout: float = 120) -> list[Request]:
        """Blocks until so many requests for ``path`` have come; in a test with a loop, call it in a thread."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self._to(path)) >= count, timeout)
            assert arrived, f"{len(self._to(path))} of {count} requests for {path} came within {timeout} s"
            return self._to(path)

    def _to(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    # --- threads ---

    def _start(self, work: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(connection,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections.add(connection)
                stopping = self._stopping.is_set()
            if stopping:
                connection.close()
                return
            self._start(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            with contextlib.suppress(OSError, EOFError):  # the client left, or the test is over
                if self._tls is not None:
                    # On Linux a socket of this context keeps the descriptor; the plain one is empty afterwards.
                    connection = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
                    with self._changed:
                        self._connections.discard(plain)
                        self._connections.add(connection)
                    connection.do_handshake()
                request = _read(connection)
                self._reply_to(request)(Client(connection, self._stopping))
        finally:
            with self._changed:
                self._connections.discard(connection)
            connection.close()

    def _reply_to(self, request: Request) -> Reply:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            replies = self._replies.get(request.path)
            if replies is None:
                return status(404)
            return replies[0] if len(replies) == 1 else replies.pop(0)


def _read(connection: socket.socket) -> Request:
    with connection.makefile("rb") as stream:
        method, target, _ = _line(stream).split(" ")
        headers = {}
        while line := _line(stream):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def _line(stream: Any) -> str:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode("latin-1").rstrip("\r\n")


def _abort(connection: socket.socket) -> None:
    """Close with a reset instead of a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
