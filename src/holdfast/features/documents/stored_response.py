"""An answer whose body is a stored file. One piece of the file is in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from fastapi import Response

from holdfast.http import Receive, Scope, Send

OpenedFile = AbstractAsyncContextManager[AsyncIterator[bytes]]


class StoredResponse(Response):
    """Sends ``before``, the file, and ``after``. A missing file is refused before the answer begins.

    A file that cannot be read to its end breaks the connection off, so that nobody takes a part for the whole.
    """

    def __init__(self, file: OpenedFile, media_type: str, *, before: bytes = b"", after: bytes = b"") -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._file = file
        self._before = before
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. The next piece is read when the last one is on its way."""
        del scope, receive
        async with self._file as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._before, "more_body": True})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": self._after})
