"""A real HTTP server that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Says:
    """An answer."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass(frozen=True)
class Resets:
    """The connection breaks off when the request has arrived; or after a part of the answer."""

    after: bytes = b""


@dataclass(frozen=True)
class Hangs:
    """There is no answer until the end of the test."""


Behaviour = Says | Resets | Hangs


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ScriptedServer(ThreadingHTTPServer):
    """Answers with the script, one behaviour for each request. The last one is for all further requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script: list[Behaviour] = []
        self.asked: list[Asked] = []
        self.reads = True
        """Whether it reads the bodies of requests."""
        self.ended = threading.Event()

    def next(self, asked: Asked) -> Behaviour:
        self.asked.append(asked)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0)) if self.server.reads else b""
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, parse_qsl(parts.query), headers, body)
        match self.server.next(asked):
            case Says() as says:
                content = json.dumps(says.document).encode() if says.raw is None else says.raw
                self.send_response(says.status)
                for name, value in {"content-length": str(len(content)), **says.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            case Resets(after):
                self.wfile.write(after)
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
            case Hangs():
                self.server.ended.wait()
                self.close_connection = True

    do_GET = do_POST = _answer  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """No log."""


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
