"""The API on a real socket, in its own event loop, for clients that cannot share the loop of a test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn


class ApiThread(threading.Thread):
    """Serves the app of :meth:`opened`, from :meth:`begin` to :meth:`stop`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """The app, with the records that a test needs."""
        raise NotImplementedError
        yield

    def begin(self) -> None:
        """Start the server, and wait until it answers."""
        self.start()
        assert self._ready.wait(timeout=120)

    def stop(self) -> None:
        """Stop the server, and wait for its end."""
        if self._server is not None:
            self._server.should_exit = True
        self.join(timeout=120)
        self._socket.close()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with self.opened() as app:
            config = uvicorn.Config(app, log_level="warning", lifespan="off", http="httptools", loop="asyncio")
            self._server = uvicorn.Server(config)
            self._ready.set()
            await self._server.serve(sockets=[self._socket])
