"""The downstream of the demo: the system that Holdfast forwards events to. It fails on request.

It is a real HTTP server on the loopback interface, and checks the signature of every request.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_LONGEST_SILENCE_SECONDS: Final = 60.0


class Behaviour(Enum):
    """How the downstream answers a request."""

    WORKING = HTTPStatus.NO_CONTENT
    BROKEN = HTTPStatus.SERVICE_UNAVAILABLE
    REFUSING = HTTPStatus.UNPROCESSABLE_ENTITY
    SILENT = None
    """It reads the request and does not answer, until the client gives up."""


class Downstream:
    """Answers each event by the behaviours that are set for it, in order; the last one is repeated."""

    def __init__(self, secret: str, behaviour: Behaviour = Behaviour.WORKING) -> None:
        self._secret = secret.encode()
        self._behaviour = behaviour
        self._behaviours: dict[str, list[Behaviour]] = {}
        self._seen: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Serve in the background during the body; yields the address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        server.daemon_threads = True  # a thread that does not answer must not delay the end of the demo
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/events"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def behave(self, key: str, behaviours: Sequence[Behaviour]) -> None:
        """Set the behaviours for the event with this idempotency key."""
        with self._changed:
            self._behaviours[key] = list(behaviours)

    def seen(self, key: str) -> int:
        """How often the event was sent here."""
        with self._changed:
            return self._seen[key]

    def taken(self, key: str) -> int:
        """How often the event was answered with success."""
        with self._changed:
            return self._taken[key]

    def wait_until_seen(self, key: str, seconds: float) -> bool:
        """Wait until the event was sent here at least once; False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._seen[key] > 0, seconds)

    # --- for the request handler --------------------------------------------------------------------------

    def signed(self, key: str, timestamp: str, body: bytes, signature: str) -> bool:
        """Whether the request has a valid signature (Standard Webhooks)."""
        content = b".".join((key.encode(), timestamp.encode(), body))
        digest = hmac.digest(self._secret, content, hashlib.sha256)
        return hmac.compare_digest(f"v1,{base64.b64encode(digest).decode()}".encode(), signature.encode())

    def receive(self, key: str) -> Behaviour:
        """Count a request, and choose its answer."""
        with self._changed:
            self._seen[key] += 1
            planned = self._behaviours.get(key, [self._behaviour])
            behaviour = planned.pop(0) if len(planned) > 1 else planned[0]
            self._taken[key] += behaviour is Behaviour.WORKING
            self._changed.notify_all()
            return behaviour


def _handler_for(downstream: Downstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            key = self.headers.get("webhook-id", "")
            timestamp = self.headers.get("webhook-timestamp", "")
            if not downstream.signed(key, timestamp, body, self.headers.get("webhook-signature", "")):
                self._answer(HTTPStatus.UNAUTHORIZED)
                return
            behaviour = downstream.receive(key)
            if behaviour.value is None:
                self._stay_silent()
            else:
                self._answer(behaviour.value)

        def _answer(self, status: HTTPStatus) -> None:
            with contextlib.suppress(OSError):  # the client may be gone: the server is killed in one chapter
                self.send_response(status)
                if status is not HTTPStatus.NO_CONTENT:
                    self.send_header("content-length", "0")
                self.end_headers()

        def _stay_silent(self) -> None:
            self.close_connection = True
            self.connection.settimeout(_LONGEST_SILENCE_SECONDS)
            with contextlib.suppress(OSError):
                self.connection.recv(1, socket.MSG_PEEK)  # returns when the client gives up

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of http.server
            """Print nothing: only the narrator uses the terminal."""

    return Handler
