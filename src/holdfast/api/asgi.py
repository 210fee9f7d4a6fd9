"""Plain ASGI, so that every route can use it: read a request (trace id, headers, a limited body), and answer it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.contracts.errors import HoldfastError
from holdfast.telemetry import emit_failure, events

from .errors import Code, Refusal, intake_refusal_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Headers = Iterable[tuple[bytes, bytes]]

REQUEST_ID: Final = b"x-request-id"
TRACEPARENT: Final = b"traceparent"
TRACE: Final = "holdfast.trace_id"
"""The key of the request's trace id in the ASGI scope."""
CONTENT_TYPE: Final = b"content-type"
CONTENT_ENCODING: Final = b"content-encoding"
CONTENT_LENGTH: Final = b"content-length"
BODY_HEADERS: Final = frozenset({CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH})

_JSON_TYPE: Final = (b"content-type", b"application/json")
_TRACEABLE: Final = re.compile(rb"[!-~]{1,200}")
_JSON: Final = re.compile(rb'application/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?', re.IGNORECASE)


class Disconnected(Exception):
    """The client disconnected before its request was complete. No answer is sent."""


class Reply(Protocol):
    """Sends the answer to one request, a JSON body. It is called once, at any time; the client may be gone."""

    def __call__(self, status: int, body: bytes, trace_id: str, headers: Headers = ()) -> None:
        """Send the answer. It raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Shortcut:
    """How the server answers a POST to one path without ASGI, and without a task for each request.

    ``take`` gets the headers and the whole body, of at most ``most_bytes``. It raises nothing and calls the ``Reply``,
    now or later. The ASGI app of the path must answer in the same way: it gets the requests that come in another form.
    """

    take: Callable[[Headers, bytes, Reply], None]
    most_bytes: int


# --- requests --------------------------------------------------------------------------------------------------------


def route_path(scope: Scope) -> str:
    """The path below the prefix where another app has mounted the API (``root_path``)."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    below = path.removeprefix(prefix)
    return below if below.startswith("/") else path


def pick(headers: Iterable[tuple[bytes, bytes]], wanted: frozenset[bytes]) -> tuple[dict[bytes, bytes], set[bytes]]:
    """The wanted headers, and the names of the headers that came more than once."""
    found: dict[bytes, bytes] = {}
    repeated: set[bytes] = set()
    for name, value in headers:
        if name in wanted:
            if name in found:
                repeated.add(name)
            found[name] = value
    return found, repeated


def valid_trace_id(sent: bytes | None) -> str | None:
    """The sender's ``x-request-id``, if it has 1 to 200 visible ASCII characters; otherwise None."""
    if sent is not None and _TRACEABLE.fullmatch(sent) is not None:
        return sent.decode("ascii")
    return None


def require_plain_json(headers: Mapping[bytes, bytes], repeated: set[bytes]) -> None:
    """Refuse a body that is not declared as JSON in UTF-8, or is compressed: a small compressed body can be huge."""
    declared = headers.get(CONTENT_TYPE, b"")
    if declared != b"application/json" and _JSON.fullmatch(declared) is None:
        raise Refusal(Code.UNSUPPORTED_MEDIA_TYPE)
    if headers.get(CONTENT_ENCODING, b"identity").strip().lower() != b"identity":
        raise Refusal(Code.UNSUPPORTED_MEDIA_TYPE)
    if CONTENT_TYPE in repeated or CONTENT_ENCODING in repeated:
        raise Refusal(Code.UNSUPPORTED_MEDIA_TYPE)


async def read_body(receive: Receive, declared: bytes | None, limit: int) -> bytes:
    """The raw body. It is refused as soon as the declared length or the bytes read exceed ``limit``."""
    if declared is not None and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)


async def read_json_bytes(headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """The raw body, which must be declared as plain JSON. It is not parsed yet."""
    picked, repeated = pick(headers, BODY_HEADERS)
    require_plain_json(picked, repeated)
    return await read_body(receive, picked.get(CONTENT_LENGTH), limit)


def _too_large(limit: int) -> Refusal:
    return Refusal(Code.PAYLOAD_TOO_LARGE, f"The body is larger than {limit} bytes.")


# --- answers ---------------------------------------------------------------------------------------------------------


async def send_json(
    send: Send,
    status: int,
    body: bytes,
    trace_id: str,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send one JSON body, with the trace id in ``x-request-id``."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                _JSON_TYPE,
                (b"content-length", b"%d" % len(body)),
                (REQUEST_ID, trace_id.encode("ascii")),
                *headers,
            ],
        },
    )
    await send({"type": "http.response.body", "body": body})


async def send_refusal(send: Send, refusal: Refusal, trace_id: str) -> None:
    """Send an error. All errors have the same shape."""
    await send_json(send, refusal.status, refusal.body(trace_id), trace_id, _headers_of(refusal))


def reply_refusal(reply: Reply, refusal: Refusal, trace_id: str) -> None:
    """The same for a :class:`Shortcut`."""
    reply(refusal.status, refusal.body(trace_id), trace_id, _headers_of(refusal))


def _headers_of(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in refusal.headers.items()]


def refusal_of_any(error: Exception, trace_id: str) -> Refusal:
    """The answer to any error of an intake. An unexpected error is logged."""
    if isinstance(error, Refusal):
        return error
    refusal = intake_refusal_of(error) if isinstance(error, HoldfastError) else Refusal(Code.INTERNAL_ERROR)
    if refusal.code is Code.INTERNAL_ERROR:
        emit_failure(events.API_UNEXPECTED, error, trace_id=trace_id)
    return refusal
