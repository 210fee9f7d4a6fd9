"""The SQLite file: how it is opened, migrated, written and read."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pydantic_core

from holdfast.contracts.errors import ConfigurationError, StoreUnavailable
from holdfast.contracts.queues import Acknowledgement, QueueJob

from .executors import Executor, InlineExecutor, ThreadExecutor, Work

Result = TypeVar("Result")
Milliseconds = Callable[[], int]
Migration = tuple[str, ...]
"""The statements that lead from one schema version to the next."""


class Outbox(Protocol):
    """A queue in the same file. Jobs are added in the ledger's own transaction, so that one commit writes both."""

    def add(self, connection: sqlite3.Connection, queue: str, jobs: Sequence[QueueJob]) -> None:
        """Publish the jobs inside the transaction that the caller has open."""
        ...

    def acknowledge(self, connection: sqlite3.Connection, acknowledgements: Sequence[Acknowledgement]) -> set[str]:
        """Finish or return deliveries inside the transaction. Returns the queues that have jobs to deliver again."""
        ...

    def added(self, queue: str) -> None:
        """Wake the takers that wait for jobs. Call this once the transaction is committed."""
        ...


OLDEST_SQLITE: Final = (3, 38, 0)
"""The first version with ``->>``; ``UPDATE ... FROM`` and ``ON CONFLICT`` are older."""

_BUSY_TIMEOUT_SECONDS: Final = 15.0

_SCHEMA_VERSIONS: Final = """
CREATE TABLE IF NOT EXISTS schema_versions (component TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID
"""


to_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Compact JSON, for a parameter that is a batch; see :func:`one`."""


def rows_to_json(rows: Sequence[tuple[Any, ...]]) -> str:
    """The same for rows of texts, whole numbers and mappings of texts, in less than half the time."""
    return pydantic_core.to_json(rows).decode()


def wall_clock_ms() -> int:
    """This machine's clock. Every process that can open the file shares it, so it can order their leases (I15)."""
    return time.time_ns() // 1_000_000


class Database:
    """A file with one writer thread and one reader thread in this process; other processes may have it open too.

    ``now`` is the clock that the adapters read inside their transactions.
    """

    def __init__(self, path: Path | None, *, now: Milliseconds = wall_clock_ms) -> None:
        """Open ``path``, creating it when absent. None keeps everything in memory and on the caller's thread."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            needed = ".".join(map(str, OLDEST_SQLITE))
            message = f"Holdfast needs SQLite {needed} or newer; this Python has {sqlite3.sqlite_version}."
            raise ConfigurationError(message)
        self.now = now
        self.path = path
        self._writer: Executor
        self._reader: Executor
        if path is None:
            self._writer = self._reader = InlineExecutor(sqlite3.connect(":memory:", isolation_level=None))
        else:
            _prepare(path)
            self._writer = ThreadExecutor(lambda: connect(path), writes=True)
            self._reader = ThreadExecutor(lambda: connect(path, read_only=True), writes=False)

    async def write(self, work: Work[Result], *, durable: bool = True) -> Result:
        """Run ``work`` in a write transaction and return once it is committed; see :class:`~.executors.Executor`."""
        return await self._writer.run(work, durable=durable)

    async def read(self, work: Work[Result]) -> Result:
        """Run ``work`` on a snapshot that contains every write that returned before this call."""
        return await self._reader.run(work, durable=False)

    async def migrate(self, component: str, migrations: Sequence[Migration]) -> None:
        """Bring a component's tables to the newest version, one step at a time, in one transaction.

        Several processes may start at once: the first migrates, the others find the tables migrated.
        """

        def step_by_step(connection: sqlite3.Connection) -> None:
            connection.execute(_SCHEMA_VERSIONS)
            row = connection.execute("SELECT version FROM schema_versions WHERE component=?", (component,)).fetchone()
            version = row[0] if row else 0
            if version > len(migrations):
                message = (
                    f"The file's {component} schema is version {version}; this Holdfast knows {len(migrations)}. "
                    "Run the newer Holdfast that wrote it."
                )
                raise ConfigurationError(message)
            for statements in migrations[version:]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_versions VALUES (?, ?) ON CONFLICT DO UPDATE SET version=excluded.version",
                (component, len(migrations)),
            )

        await self.write(step_by_step)

    async def truncate_log(self) -> bool:
        """Move the write-ahead log into the file and empty the log. False: readers were in the way for too long."""
        path = self.path
        return path is None or await asyncio.to_thread(_truncate_log, path)

    async def close(self) -> None:
        """Finish what was submitted and close the file."""
        await self._writer.close()
        if self._reader is not self._writer:
            await self._reader.close()


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with the settings that durability and several processes need."""
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("PRAGMA cache_size=-65536")
    connection.execute("PRAGMA temp_store=MEMORY")
    if read_only:
        connection.execute("PRAGMA query_only=1")
    else:
        connection.execute("PRAGMA wal_autocheckpoint=4000")
        connection.execute("PRAGMA journal_size_limit=67108864")
        connection.execute("PRAGMA secure_delete=ON")  # deleted personal data must not stay in free pages
    return connection


def files_of(path: Path) -> list[Path]:
    """The database, and the files that SQLite keeps beside it."""
    return [path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm", "-journal"))]


def _truncate_log(path: Path) -> bool:
    # A checkpoint cannot be part of a transaction, so it has a connection of its own.
    connection = connect(path)
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    except sqlite3.Error as error:
        message = f"Cannot empty the write-ahead log of {path}: {error}"
        raise StoreUnavailable(message) from error
    finally:
        connection.close()


def _prepare(path: Path) -> None:
    """Create the file with a write-ahead log before an executor opens it, so that problems show at the start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only our user may read the file, with any umask. SQLite gives the files beside it the same rights.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = connect(path)
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        message = f"Cannot open the database {path}: {error}"
        raise StoreUnavailable(message) from error
    if mode != "wal":
        message = (
            f"The file system of {path} does not support SQLite's write-ahead log; put HOLDFAST_DATA on a local disk."
        )
        raise ConfigurationError(message)


def one(connection: sqlite3.Connection, statement: str, parameters: Any = ()) -> Any:  # noqa: ANN401 - SQL's own types
    """The single value that a statement returns.

    A batch is one JSON parameter, and its result is one JSON value. SQLite then does the whole batch in one step
    without the interpreter lock, instead of taking and releasing the lock for every row.
    """
    row = connection.execute(statement, parameters).fetchone()
    return row[0] if row is not None else None
