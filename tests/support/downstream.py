"""A downstream on a real socket that counts what it gets.

It takes plain events, answers ``flaky`` ones with 503 at first, and refuses ``doomed`` and ``mended`` ones until a test
says that the cause is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import Self

from .counted_work import mode_of

_FAILURES_OF_FLAKY = 1


class Downstream:
    def __init__(self) -> None:
        self.deliveries: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.mended = False
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.close()
        await asyncio.gather(*filter(None, self._connections.values()))

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/events"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.current_task()
        try:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                    fields = dict(line.split(": ", 1) for line in head[1:] if line)
                    event = json.loads(await reader.readexactly(int(fields["content-length"])))
                    status = self._status_for(event["idempotencyKey"])
                    writer.write(f"HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n".encode())
                    await writer.drain()
        finally:
            writer.close()
            self._connections.pop(writer)

    def _status_for(self, key: str) -> int:
        self.deliveries[key] += 1
        mode = mode_of(key)
        if mode == "flaky" and self.deliveries[key] <= _FAILURES_OF_FLAKY:
            return 503
        if mode == "doomed" or (mode == "mended" and not self.mended):
            return 422
        self.taken[key] += 1
        return 200
