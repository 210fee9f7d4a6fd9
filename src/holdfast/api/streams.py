"""Server-sent events: a client gets each change of a status until it disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Final, NamedTuple

from fastapi.responses import Response

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.tenants import Sender
from holdfast.engine.sender_limits import SenderLimits
from holdfast.telemetry import refused

from .asgi import Receive, Scope, Send
from .errors import Code, Refusal

_KEEP_ALIVE: Final = b": still here\n\n"
_RECONNECT: Final = b"retry: 2000\n\n"
"""When a stream breaks off, the client should reconnect after so many milliseconds, to this or another process."""


class Progress(NamedTuple):
    """A status: as one line of JSON, and whether it is final."""

    json: str
    final: bool


ReadProgress = Callable[[], Awaitable[Progress | None]]


def event_schema(view: str) -> dict[str, Any]:
    """The schema of one event, whose data is a view with this name."""
    return {
        "type": "object",
        "description": "One event of the stream.",
        "required": ["event", "data"],
        "properties": {
            "event": {"type": "string", "enum": ["progress", "end"]},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": f"#/components/schemas/{view}"},
            },
        },
    }


class Streams:
    """The open streams of this process. Their number is limited, in all and for each tenant.

    They do not delay the stop of the process.
    """

    def __init__(self, limit: int, tenants: SenderLimits) -> None:
        self._limit = limit
        self._tenants = tenants
        self._open = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The process is about to stop: every stream breaks off. Its client may reconnect to another process."""
        self._stopping.set()

    async def wait_for_stop(self) -> None:
        """Wait until the process is about to stop."""
        await self._stopping.wait()

    @contextmanager
    def count_one(self, sender: Sender | None, **share: int) -> Iterator[None]:
        """Count one open stream. Raises a refusal when the limit is reached, and ``TooManyStreams`` for its tenant.

        Without a sender, the stream is the operator's own. ``share``: see :meth:`SenderLimits.stream`.
        """
        if self._open >= self._limit:
            refused("streams")
            raise Refusal(
                Code.TOO_MANY_REQUESTS, "Too many progress streams are open; read the status of the job instead."
            )
        with nullcontext() if sender is None else self._tenants.stream(sender, **share):
            self._open += 1
            try:
                yield
            finally:
                self._open -= 1


class ProgressStream(Response):
    """A stream of events: ``progress`` at once and after each change, and ``end`` with the final status.

    The status is read every ``interval``. The stream ends when the status is final, when ``read`` returns None (there
    is no record any more, or the client may not read it any more), when the client disconnects, or when the process
    stops. If the store is not available, the status is read again later. After ``keep_alive`` without an event, a
    comment shows that the stream is alive.
    """

    media_type = "text/event-stream"

    def __init__(
        self, streams: Streams, sender: Sender | None, read: ReadProgress, *, interval: timedelta, keep_alive: timedelta
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._sender = sender
        self._read = read
        self._interval = interval.total_seconds()
        self._keep_alive = keep_alive.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the stream ends."""
        del scope
        with self._streams.count_one(self._sender):
            reasons_to_stop = [
                asyncio.create_task(wait_for_disconnect(receive)),
                asyncio.create_task(self._streams.wait_for_stop()),
            ]
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for chunk in self._chunks(reasons_to_stop):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                for each in reasons_to_stop:
                    each.cancel()
                await asyncio.gather(*reasons_to_stop, return_exceptions=True)

    async def _chunks(self, reasons_to_stop: list[asyncio.Task[None]]) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        sent, sent_at = None, now()
        yield _RECONNECT
        while not any(each.done() for each in reasons_to_stop):
            try:
                found = await self._read()
            except StoreUnavailable:
                found = sent
            else:
                if found is None:
                    return
            if found is not None and found != sent:
                yield _event("progress", found.json)
                sent, sent_at = found, now()
            if found is not None and found.final:
                yield _event("end", found.json)
                return
            if now() - sent_at >= self._keep_alive:
                yield _KEEP_ALIVE
                sent_at = now()
            await asyncio.wait(reasons_to_stop, timeout=self._interval, return_when=asyncio.FIRST_COMPLETED)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(name: str, json: str) -> bytes:
    return f"event: {name}\ndata: {json}\n\n".encode()
