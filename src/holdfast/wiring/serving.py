"""The web server of a process that serves the API, and how it closes its connections when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import uvicorn

_LAST_REQUESTS: Final = timedelta(seconds=1)
"""How long a connection may stay open without a request after the process began to stop."""
_LOOK_EVERY: Final = timedelta(milliseconds=10)


class LastAnswers:
    """The API. Once the process stops, every answer has ``Connection: close``."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401 - an ASGI app
        self._app = app
        self._leaving = False

    def leave(self) -> None:
        """From now on, answers have ``Connection: close``, and long-running answers end."""
        self._leaving = True
        self._app.leave()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Answer one request."""
        await self._app(scope, receive, _closing(send) if self._leaving else send)


def _closing(send: Any) -> Any:  # noqa: ANN401 - as ASGI has it
    async def send_closing(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return send_closing


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: this module stops all parts in order."""

    def __init__(self, config: uvicorn.Config, app: LastAnswers) -> None:
        super().__init__(config)
        self._app = app
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and set ``up``."""
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer the requests of open connections, and only then close connections.

        uvicorn closes at once a connection whose request has not been read yet. If other processes listen on the same
        socket, one of them could have answered that client.
        """
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        self._app.leave()
        loop = asyncio.get_running_loop()
        end = loop.time() + _LAST_REQUESTS.total_seconds()
        while True:
            await asyncio.sleep(_LOOK_EVERY.total_seconds())
            if not self.server_state.connections or loop.time() > end:
                break
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals."""
        yield


def server_of(api: Any, patience: timedelta) -> Server:  # noqa: ANN401 - an ASGI app
    """A server for the API. When it stops, running requests get so much time to end."""
    app = LastAnswers(api)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http="httptools",
        ws="none",  # a request for a WebSocket is a request like any other, whatever is installed
        timeout_graceful_shutdown=max(1, int(patience.total_seconds())),
    )
    return Server(config, app)
