"""A look at the data of a mongod that does not run, whatever replica set it was part of."""

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
    """A client of a mongod that runs on this data while the body does.

    Raises :class:`ServerMissing` when there is no mongod here, when the data is in use, or cannot be read.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
        # Not as a member of its set: it would wait for an election under an address that it no longer has.
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
            message = f"What MongoDB left in {data} cannot be read: {type(error).__name__}"
            raise ServerMissing(message) from error
        finally:
            server.stop()
