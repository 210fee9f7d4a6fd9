"""The web server of a process that serves the API, and how it closes its connections when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import uvicorn

from holdfast.config import Settings
from holdfast.contracts.ports import Ids

from .connection import Connection
from .connection_limits import ConnectionLimits
from .connections import Connections

_LAST_REQUESTS: Final = timedelta(seconds=1)
"""How long a connection may stay open without a request after the process began to stop."""
_UNCONFIRMED: Final = timedelta(seconds=60)
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

    def __init__(self, config: uvicorn.Config, app: LastAnswers, connections: Connections) -> None:
        super().__init__(config)
        self._app = app
        self._connections = connections
        self._sweeping: asyncio.Task[None] | None = None
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and set ``up``."""
        for each in sockets or ():
            _forget_vanished_clients(each)
        await super().startup(sockets)
        self._sweeping = asyncio.create_task(self._connections.sweep())
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
        self._connections.leaving = True
        loop = asyncio.get_running_loop()
        end = loop.time() + _LAST_REQUESTS.total_seconds()
        while True:
            await asyncio.sleep(_LOOK_EVERY.total_seconds())
            if not self.server_state.connections or loop.time() > end:
                break
        self._connections.stop_lingering()
        try:
            await super().shutdown(sockets)
        finally:
            if self._sweeping is not None:
                self._sweeping.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals."""
        yield


def _forget_vanished_clients(listener: socket.socket) -> None:
    """Let the kernel end a connection whose client does not confirm what it was sent: a stream to nobody."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        milliseconds = int(_UNCONFIRMED.total_seconds() * 1000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def server_of(api: Any, settings: Settings, ids: Ids) -> Server:  # noqa: ANN401 - an ASGI app
    """A server for the API. When it stops, running requests get as much time to end as jobs."""
    app = LastAnswers(api)
    shortcuts = getattr(api, "shortcuts", {})
    connections = Connections(ConnectionLimits.of(settings), lambda: ids.new("req"), shortcuts)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        log_level="error",  # it would log a line for each malformed request
        http=cast("Any", partial(Connection, connections)),
        ws="none",  # a request for a WebSocket is a request like any other, whatever is installed
        timeout_keep_alive=math.ceil(connections.limits.idle),
        timeout_graceful_shutdown=max(1, settings.worker_drain_timeout_ms // 1000),
    )
    return Server(config, app, connections)
