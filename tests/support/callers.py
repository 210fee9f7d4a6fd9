"""Callers of an API over sockets of their own: from an address of their choice, with a key, on a kept connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from .email_client import a_letter

BOUNDARY = "a-boundary-of-callers"
_FORM = f"multipart/form-data; boundary={BOUNDARY}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, and of no error the status."""
        return self.document.get("errorCode", "") if self.status >= 400 else str(self.status)

    @property
    def retry_after(self) -> int:
        return int(self.headers["retry-after"])


class Caller:
    """One kept connection. The server may close it after an answer; the next request opens another."""

    def __init__(self, port: int, key: str = "", address: str = "127.0.0.1") -> None:
        self.port, self.key, self.address = port, key, address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request, and read the answer."""
        await self._send(method, path, body, headers)
        assert self._reader is not None
        status, fields = await _head(self._reader)
        answer = Answer(status, fields, await self._reader.readexactly(int(fields["content-length"])))
        if fields.get("connection") == "close":
            self.close()
        return answer

    async def send_email(self) -> Answer:
        return await self.ask("POST", "/v1/email/send", json.dumps(a_letter()).encode())

    async def list_emails(self) -> Answer:
        return await self.ask("GET", "/v1/email")

    async def send_emails(self, number: int) -> Answer:
        body = {"emails": [a_letter() for _ in range(number)]}
        return await self.ask("POST", "/v1/email/batch", json.dumps(body).encode())

    async def upload(self, job_id: str) -> Answer:
        """Submit a file that nobody reads."""
        fields = {"job_id": job_id, "job_type": "OCR", "input_type": "PDF"}
        parts = [
            f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items()
        ]
        parts.append(f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n')
        body = "".join(parts).encode() + b"%PDF-1.7\n" + job_id.encode() + f"\n%%EOF\r\n--{BOUNDARY}--\r\n".encode()
        return await self.ask("POST", "/v1/documents", body, content_type=_FORM)

    async def watch(self, job_id: str) -> Answer | None:
        """Open a stream; the answer is there if it was refused. :meth:`ended` waits for its end."""
        await self._send("GET", f"/v1/documents/{job_id}/events", b"", {})
        assert self._reader is not None
        status, fields = await _head(self._reader)
        if status == 200:
            return None
        return Answer(status, fields, await self._reader.readexactly(int(fields["content-length"])))

    async def ended(self) -> bytes:
        """Wait until the stream has ended; the bytes that came. A stream is sent in chunks: the last one is empty."""
        assert self._reader is not None
        return await self._reader.readuntil(b"\r\n0\r\n\r\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self.port, local_addr=(self.address, 0)
            )
        sent = {"host": "holdfast", "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            sent.setdefault("authorization", f"Bearer {self.key}")
        if method == "POST":
            sent["content-length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in fields}


@contextlib.asynccontextmanager
async def calling(port: int, key: str = "", address: str = "127.0.0.1") -> AsyncIterator[Caller]:
    """A caller whose connection is closed at the end."""
    caller = Caller(port, key, address)
    try:
        yield caller
    finally:
        caller.close()
