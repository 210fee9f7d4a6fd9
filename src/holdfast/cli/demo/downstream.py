"""The downstream of the demo: the system that Holdfast forwards events to, and that misbehaves on request.

A real HTTP server on the loopback interface. It checks the signature of everything it gets, as a downstream should.
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


class Mood(Enum):
    """How the downstream treats a request."""

    WORKING = HTTPStatus.NO_CONTENT
    BROKEN = HTTPStatus.SERVICE_UNAVAILABLE
    REFUSING = HTTPStatus.UNPROCESSABLE_ENTITY
    SILENT = None
    """It takes the request and never answers, until the other side gives up."""


class Downstream:
    """Answers each event by its mood for that event: the listed ones first, then the last of them for ever."""

    def __init__(self, secret: str, mood: Mood = Mood.WORKING) -> None:
        self._secret = secret.encode()
        self._mood = mood
        self._moods: dict[str, list[Mood]] = {}
        self._seen: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Serve in the background while the body runs; gives the address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        server.daemon_threads = True  # one that is silent must not hold up the end of the demo
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/events"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def behave(self, key: str, moods: Sequence[Mood]) -> None:
        """From now on, treat the event with this idempotency key so."""
        with self._changed:
            self._moods[key] = list(moods)

    def seen(self, key: str) -> int:
        """How often the event was sent here."""
        with self._changed:
            return self._seen[key]

    def taken(self, key: str) -> int:
        """How often the event was sent here and answered with success."""
        with self._changed:
            return self._taken[key]

    def wait_until_seen(self, key: str, seconds: float) -> bool:
        """Wait until the event has been sent here at least once; False when it was not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._seen[key] > 0, seconds)

    # --- for the request handler --------------------------------------------------------------------------

    def signed(self, key: str, timestamp: str, body: bytes, signature: str) -> bool:
        """Whether Holdfast signed this request, by the rules of Standard Webhooks."""
        content = b".".join((key.encode(), timestamp.encode(), body))
        digest = hmac.digest(self._secret, content, hashlib.sha256)
        return hmac.compare_digest(f"v1,{base64.b64encode(digest).decode()}".encode(), signature.encode())

    def receive(self, key: str) -> Mood:
        """Note a request, and decide on its answer."""
        with self._changed:
            self._seen[key] += 1
            planned = self._moods.get(key, [self._mood])
            mood = planned.pop(0) if len(planned) > 1 else planned[0]
            self._taken[key] += mood is Mood.WORKING
            self._changed.notify_all()
            return mood


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
            mood = downstream.receive(key)
            if mood.value is None:
                self._stay_silent()
            else:
                self._answer(mood.value)

        def _answer(self, status: HTTPStatus) -> None:
            with contextlib.suppress(OSError):  # the other side may be gone: it is killed in one chapter
                self.send_response(status)
                if status is not HTTPStatus.NO_CONTENT:
                    self.send_header("content-length", "0")
                self.end_headers()

        def _stay_silent(self) -> None:
            self.close_connection = True
            self.connection.settimeout(_LONGEST_SILENCE_SECONDS)
            with contextlib.suppress(OSError):
                self.connection.recv(1, socket.MSG_PEEK)  # returns when the other side gives up

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of http.server
            """Say nothing: the terminal belongs to the narrator."""

    return Handler
