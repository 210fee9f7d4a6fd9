"""Reading the data of a mongod that does not run, of any replica set."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.contracts.extras import install_command

from .mongo import mongod_program
from .process import ServerMissing, ServerProcess, free_port

if TYPE_CHECKING:
    from pymongo import MongoClient


@contextlib.contextmanager
def looking_at(data: Path) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of a mongod that runs with this data during the body.

    Raises :class:`ServerMissing` if there is no mongod here, or if the data is in use or cannot be read.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        # Not as a member of its replica set: it would wait for an election with an address that it no longer has.
        where = ("--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket", "--dbpath", str(data))
        server = ServerProcess("mongod", [str(mongod_program()), *where], Path(scratch), port)
        try:
            from pymongo import MongoClient  # noqa: PLC0415 - only where a server is wanted
            from pymongo.errors import PyMongoError  # noqa: PLC0415 - likewise
        except ImportError as error:
            message = f"There is no pymongo here. Install it with: {install_command(['pymongo'])}"
            raise ServerMissing(message) from error
        try:
            server.start()
            address = f"mongodb://127.0.0.1:{port}/?directConnection=true"
            client: MongoClient[dict[str, Any]]
            with MongoClient(address, timeoutMS=10_000) as client:
                yield client
        except PyMongoError as error:
            message = f"The MongoDB data in {data} cannot be read: {type(error).__name__}"
            raise ServerMissing(message) from error
        finally:
            server.stop()
