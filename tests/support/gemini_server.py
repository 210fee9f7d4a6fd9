"""A real HTTP server on loopback that answers in the REST shape of the Gemini API what a test tells it to.

::

    with GeminiServer() as server:
        server.script(rate_limited(7), text("what the page says"))  # one answer for each request, the last for the rest
        ... GeminiModel(model, server.url, key) ...        # here or in another process: the URL is enough
        server.requests[0].parts                                    # what was really sent

It checks nothing: tests look at ``requests``. A POST to anything but ``/{version}/models/{model}:generateContent`` gets
a 404 in Google's shape, and is in ``requests`` too.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

HOST = "127.0.0.1"
_METHOD = ":generateContent"
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True)
class Request:
    """What came: ``model`` is None where the path is not that of generateContent."""

    path: str
    model: str | None
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: Any = field(repr=False)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of the one content that was sent."""
        (content,) = self.body["contents"]
        return content["parts"]

    @property
    def blobs(self) -> list[tuple[str, bytes]]:
        """The inline data: MIME type and bytes."""
        found = [part["inlineData"] for part in self.parts if "inlineData" in part]
        return [
            (blob.get("mimeType") or blob["mime_type"], base64.b64decode(blob["data"] + "==", altchars=b"-_"))
            for blob in found
        ]

    @property
    def words(self) -> str:
        """All text that was sent, the system instruction first."""
        system = self.body.get("systemInstruction", {}).get("parts", [])
        return "\n".join(part["text"] for part in [*system, *self.parts] if "text" in part)

    @property
    def config(self) -> dict[str, Any]:
        return self.body.get("generationConfig", {})


@dataclass(frozen=True)
class Answer:
    """One answer: a status, headers and a body; or what ``act`` does with the connection instead."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json; charset=UTF-8"})
    act: Callable[[BaseHTTPRequestHandler, threading.Event], None] | None = None


def raw(body: Any, status: int = 200, **headers: str) -> Answer:
    """``body`` as JSON. ``retry_after="7"`` is the header Retry-After."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json; charset=UTF-8", **named})


def finish(reason: str | None, content: str | None = None) -> Answer:
    """A candidate that ended for ``reason``, with the text that it has by then; without any, it has no parts."""
    candidate: dict[str, Any] = {"content": {"role": "model"}, "index": 0}
    if content is not None:
        candidate["content"]["parts"] = [{"text": content}]
    if reason is not None:
        candidate["finishReason"] = reason
    usage = {"promptTokenCount": 258, "candidatesTokenCount": 7, "totalTokenCount": 265}
    return raw({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini", "responseId": "r1"})


def text(content: str) -> Answer:
    """A whole answer in plain text."""
    return finish("STOP", content)


def segments(said: Sequence[Mapping[str, Any]], language: str | None = "en") -> Answer:
    """A whole transcript: ``{"start": seconds, "end": seconds, "text": "..."}`` each."""
    return text(json.dumps({"language": language, "segments": [dict(each) for each in said]}))


def blocked(reason: str = "PROHIBITED_CONTENT") -> Answer:
    """A 200 without candidates: the prompt itself was refused."""
    return raw({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 258}})


def status(code: int, message: str = "It did not work.", details: Sequence[Any] = (), **headers: str) -> Answer:
    """An error in Google's shape."""
    error = {"code": code, "message": message, "status": _STATUSES.get(code, "UNKNOWN")}
    return raw({"error": {**error, "details": list(details)} if details else error}, code, **headers)


def rate_limited(seconds: float) -> Answer:
    """A 429 whose body says when to come again, as Google's does: there is no Retry-After header."""
    kind = "type.googleapis.com/google.rpc."
    quota = {"@type": f"{kind}QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerMinute"}]}
    retry = {"@type": f"{kind}RetryInfo", "retryDelay": f"{seconds:g}s"}
    return status(429, "You exceeded your current quota.", [quota, {"@type": f"{kind}Help"}, retry])


def html(code: int) -> Answer:
    """What a proxy before Google says when Google does not."""
    page = f"<!DOCTYPE html><html><title>Error {code} (Server Error)!!1</title><p>That's all we know.</html>"
    return Answer(code, page.encode(), {"Content-Type": "text/html; charset=UTF-8"})


def garbage(body: bytes = b'{"candidates": [{"content": {"par') -> Answer:
    """A 200 that is not JSON."""
    return Answer(200, body)


def redirect(to: str) -> Answer:
    """A 307: the same request, please, at another address."""
    return Answer(307, b"", {"Location": to})


def hang() -> Answer:
    """No answer until the server stops or the other side hangs up."""
    return Answer(act=lambda _, stopping: stopping.wait() and None)


def reset() -> Answer:
    """The connection is reset instead of answered."""
    return Answer(act=_reset)


def _reset(handler: BaseHTTPRequestHandler, _stopping: threading.Event) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(handler.connection.detach())  # at once: http.server would say goodbye first


class GeminiServer:
    """Serves from ``with`` on. ``url`` is what GEMINI_BASE_URL has to be."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: list[Answer] = [text("")]
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Listening((HOST, 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="gemini")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def script(self, *answers: Answer) -> None:
        """From now on these, in order; the last one again and again. Requests so far are forgotten."""
        with self._lock:
            self._answers = list(answers)
            self.requests.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if request.model is None:
                return status(404)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class _Listening(ThreadingHTTPServer):
    # A client that keeps its connection open must not keep the test from ending.
    daemon_threads = True
    block_on_close = False


def _handler(owner: GeminiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in two writes; without this each answer would wait for an ACK.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            path = unquote(self.path.partition("?")[0])
            before, models, model = path.partition("/models/")
            known = before.count("/") == 1 and models and model.endswith(_METHOD)
            try:
                body = json.loads(sent)
            except ValueError:
                body = sent
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = owner._take(Request(self.path, model.removesuffix(_METHOD) if known else None, headers, body))
            if answer.act is not None:
                answer.act(self, owner._stopping)
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Tests look at ``requests``; nothing is printed."""

    return Handler
