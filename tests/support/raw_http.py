"""HTTP over a socket of one's own, so that a test knows exactly how far a request got."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


class NotSent(Exception):
    """No connection: the other side has not seen a byte."""


class NoAnswer(Exception):
    """The request went out and no whole answer came back: whatever it asked for may or may not have happened."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    document: Any


class Line:
    """A connection for one request. Opening it apart from using it lets a thousand of them fire at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    @classmethod
    async def open(cls, address: str) -> Line:
        parts = urlsplit(address)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError as error:
            raise NotSent from error
        return cls(reader, writer, parts.netloc)

    async def exchange(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """Send and read to the end."""
        lines = [f"{method} {path} HTTP/1.1", f"host: {self._host}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if method == "POST":
            lines += [f"content-length: {len(body)}", "content-type: application/json"]
        try:
            self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await self._writer.drain()
            return await self._read()
        except (OSError, EOFError) as error:
            raise NoAnswer from error
        finally:
            await self.close()

    async def _read(self) -> Answer:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await self._reader.readexactly(int(fields["content-length"]))
        return Answer(int(head[0].split(" ")[1]), json.loads(body))

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def request(
    address: str,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes = b"",
    *,
    within: float = 30,
) -> Answer:
    """One request on a new connection. Raises :class:`NotSent` or :class:`NoAnswer`."""
    line = await Line.open(address)
    try:
        async with asyncio.timeout(within):
            return await line.exchange(method, path, headers, body)
    except TimeoutError as error:
        raise NoAnswer from error
