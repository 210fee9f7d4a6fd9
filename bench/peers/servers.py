"""The servers of a run: each is started when the first system needs it, on the loopback, and stopped at the end."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Any

import redis

from bench.cluster.places import Place
from holdfast.cli.servers import ReplicaSet, ServerMissing, ValkeyServer, start_replica_set, start_valkey

from .catalogue import APPEND_ONLY, MONGO, POSTGRES, SNAPSHOTS
from .postgres import PostgresServer

_OPTIONS = {
    SNAPSHOTS: ("--save", "3600 1 300 100 60 10000"),
    APPEND_ONLY: ("--appendonly", "yes", "--appendfsync", "everysec"),
}


class Servers:
    """What runs. A server that does not start is remembered, with the reason."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._running: dict[str, Any] = {}
        self._missing: dict[str, ServerMissing] = {}

    def need(self, name: str) -> Any:  # noqa: ANN401 - one of the servers
        """The server of this name. Raises :class:`ServerMissing`."""
        if name in self._missing:
            raise self._missing[name]
        if name not in self._running:
            try:
                server = self._start(name)
            except ServerMissing as error:
                self._missing[name] = error
                raise
            self._stack.callback(server.stop)
            self._running[name] = server
        return self._running[name]

    def _start(self, name: str) -> ValkeyServer | ReplicaSet | PostgresServer:
        folder = self._folder / name.replace(" ", "-")
        if name == POSTGRES:
            server = PostgresServer(folder)
            server.start()
            return server
        if name == MONGO:
            return start_replica_set(folder)
        return start_valkey(folder, options=_OPTIONS[name])

    def pid(self, name: str) -> int:
        """The process of a server."""
        server = self.need(name)
        return int(server.members[0].pid if name == MONGO else server.pid)

    def place(self) -> Place:
        """Redis and MongoDB, as the cluster's own measurements take them."""
        mark = f"bench{secrets.token_hex(4)}"
        return Place(self.need(APPEND_ONLY).url, self.need(MONGO).uri, self.pid(APPEND_ONLY), self.pid(MONGO), mark)

    def empty(self, name: str) -> None:
        """Forget what an earlier system left in a Redis of ours."""
        with contextlib.closing(redis.Redis.from_url(self.need(name).url)) as client:
            client.flushall()
