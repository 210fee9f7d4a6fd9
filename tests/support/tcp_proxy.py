"""A line between a client and a server that a test can trouble: slow, cut, silent, or deaf to one reply.

It knows no protocol. A request is recognised by bytes that occur in it; its reply is what the server sends next on the
same connection. That is exact for clients that have one request under way on a connection, as redis-py and PyMongo do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

_CHUNK: Final = 64 * 1024
_MOST_REMEMBERED: Final = 256 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST, as a network that cuts a line does."""


class Way(StrEnum):
    REQUESTS = "requests"
    REPLIES = "replies"


@dataclass(slots=True)
class Loss:
    """A reply to be lost, ``left`` times more, after the server has executed the request."""

    name: str
    request: Callable[[bytes], bool]
    left: int
    silent: bool
    """The client is left waiting instead of being cut off."""


class TcpProxy:
    """Listens on a port of its own and passes everything on to ``target``, unless trouble was ordered."""

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self.port = port
        self.latency = 0.0
        """Seconds that everything is under way, in each direction."""
        self.seen: Counter[str] = Counter()
        """What happened: ``connections``, ``resets``, and by its name each reply that was lost."""
        self._losses: list[Loss] = []
        self._pass: dict[Way, asyncio.Event] = {}
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        for way in Way:
            self._pass[way] = asyncio.Event()
            self._pass[way].set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    # --- trouble ------------------------------------------------------------------------------------------

    def reset(self) -> int:
        """Cut every line that is open now; return how many."""
        links = list(self._links)
        for link in links:
            link.cut()
        self.seen["resets"] += len(links)
        return len(links)

    def lose_reply(
        self,
        name: str,
        request: Callable[[bytes], bool],
        *,
        times: int = 1,
        silent: bool = False,
    ) -> None:
        """Let the server execute the next requests of this kind, and the clients never hear of it."""
        self._losses.append(Loss(name, request, times, silent))

    @property
    def owed(self) -> list[str]:
        """Replies that were ordered to be lost and have not been asked for yet."""
        return [loss.name for loss in self._losses if loss.left > 0]

    @contextlib.asynccontextmanager
    async def blackhole(self, *ways: Way) -> AsyncIterator[None]:
        """During the body nothing passes in these directions (both by default); what was sent arrives afterwards."""
        chosen = ways or tuple(Way)
        for way in chosen:
            self._pass[way].clear()
        try:
            yield
        finally:
            for way in chosen:
                self._pass[way].set()

    # --- service ------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.seen["connections"] += 1
        try:
            with contextlib.suppress(OSError):  # one side is gone, and the other is told so below
                await self._connect(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy ends; nobody waits for this task's result but its own collector
        finally:
            self._serving.discard(task)
            _cut(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target)
        link = _Link(self, writer, ours)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, Way.REQUESTS, reader, ours),
                self._pump(link, Way.REPLIES, theirs, writer),
                return_exceptions=True,  # a line that breaks on one side ends the other pump too
            )
        finally:
            self._links.discard(link)
            link.cut()

    async def _pump(self, link: _Link, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what comes and deliver it in order when its time has come; end when either side does."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(way, under_way, writer))
        try:
            while data := await reader.read(_CHUNK):
                if link.passes(way, data, self._losses):
                    under_way.put_nowait((asyncio.get_running_loop().time() + self.latency, data))
            under_way.put_nowait((0.0, b""))
            await delivering
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
            link.cut()  # half-open lines are of no use to the clients that are tested here

    async def _deliver(
        self, way: Way, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await under_way.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await self._pass[way].wait()
            if writer.transport.is_closing():
                return
            writer.write(data)
            await writer.drain()


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: TcpProxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._sides = (client, server)
        self._asked = b""
        self._loss: Loss | None = None
        self._deaf = False

    def passes(self, way: Way, data: bytes, losses: list[Loss]) -> bool:
        """Whether these bytes may go on. A reply that is to be lost ends the connection or its hearing."""
        if way is Way.REQUESTS:
            self._asked = (self._asked + data)[-_MOST_REMEMBERED:]
            for loss in losses:
                if self._loss is None and loss.left > 0 and loss.request(self._asked):
                    loss.left -= 1
                    self._loss = loss
            return True
        self._asked = b""
        if self._loss is not None:  # the server has answered, so it has executed the request
            self._proxy.seen[self._loss.name] += 1
            if not self._loss.silent:
                self.cut()
            self._loss, self._deaf = None, True
        return not self._deaf

    def cut(self) -> None:
        for writer in self._sides:
            _cut(writer)


def _cut(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
