"""Sending answers over plain ASGI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.contracts.errors import HoldfastError
from holdfast.telemetry import emit_failure, events

from .errors import Code, Refusal, intake_refusal_of
from .reading import REQUEST_ID, Send

_JSON_TYPE: Final = (b"content-type", b"application/json")


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
    headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in refusal.headers.items()]
    await send_json(send, refusal.status, refusal.body(trace_id), trace_id, headers)


def refusal_of_any(error: Exception, trace_id: str) -> Refusal:
    """The answer to any error of an intake. An unexpected error is logged."""
    if isinstance(error, Refusal):
        return error
    refusal = intake_refusal_of(error) if isinstance(error, HoldfastError) else Refusal(Code.INTERNAL_ERROR)
    if refusal.code is Code.INTERNAL_ERROR:
        emit_failure(events.API_UNEXPECTED, error, trace_id=trace_id)
    return refusal
