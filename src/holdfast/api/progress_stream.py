"""Telling a client what changes, for as long as it listens: server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, NamedTuple

from fastapi.responses import Response

from holdfast.contracts.errors import StoreUnavailable

from .errors import Code, Refusal
from .reading import Receive, Scope, Send

_ALIVE: Final = b": still here\n\n"
_RECONNECT: Final = b"retry: 2000\n\n"
"""Milliseconds after which a client whose stream broke off should come back, to this process or to another."""


class Sight(NamedTuple):
    """How something stands: as one line of JSON, and whether that is the end."""

    json: str
    final: bool


Look = Callable[[], Awaitable[Sight | None]]


class Streams:
    """The streams that are open in this process: a limited number, and they do not keep it from stopping."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """The process is about to stop: every stream breaks off, and its client may come back elsewhere."""
        self._leaving.set()

    async def left(self) -> None:
        """Wait until the process is about to stop."""
        await self._leaving.wait()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A stream is open inside. Raises a refusal when there are as many as there may be."""
        if self._open >= self._most:
            raise Refusal(Code.TOO_MANY_REQUESTS, "Too many progress streams are open; ask for the status instead.")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class ProgressStream(Response):
    """An answer that goes on: ``progress`` at once and after each change, and ``end`` with the last word.

    It looks every ``pace`` until there is an end, nothing to see any more, or nobody who listens. A store that does not
    answer is asked again. After a ``silence``, a comment shows that the stream is alive.
    """

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, look: Look, *, pace: timedelta, silence: timedelta) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._look = look
        self._pace = pace.total_seconds()
        self._silence = silence.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell it all."""
        del scope
        with self._streams.one_more():
            reasons_to_stop = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._streams.left())]
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for words in self._words(reasons_to_stop):
                    await send({"type": "http.response.body", "body": words, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                for each in reasons_to_stop:
                    each.cancel()
                await asyncio.gather(*reasons_to_stop, return_exceptions=True)

    async def _words(self, reasons_to_stop: list[asyncio.Task[None]]) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        told, spoken = None, now()
        yield _RECONNECT
        while not any(each.done() for each in reasons_to_stop):
            try:
                seen = await self._look()
            except StoreUnavailable:
                seen = told
            else:
                if seen is None:
                    return
            if seen is not None and seen != told:
                yield _event("progress", seen.json)
                told, spoken = seen, now()
            if seen is not None and seen.final:
                yield _event("end", seen.json)
                return
            if now() - spoken >= self._silence:
                yield _ALIVE
                spoken = now()
            await asyncio.wait(reasons_to_stop, timeout=self._pace, return_when=asyncio.FIRST_COMPLETED)


async def _gone(receive: Receive) -> None:
    """Wait until the client is."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(name: str, json: str) -> bytes:
    return f"event: {name}\ndata: {json}\n\n".encode()
