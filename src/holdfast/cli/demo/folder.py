"""The folder that the demo fills. It takes only what is empty or was left by an earlier demo, and only for itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.contracts.errors import ConfigurationError
from holdfast.wiring import DATABASE_FILE

SOURCE: Final = "demo-courier"
"""The courier of the demo. Every idempotency key of the demo starts with it, so its data can be told from yours."""

MARKER: Final = ".made-by-holdfast-demo"
LOG_FILE: Final = "server.log"

_OTHERS_ENTRIES: Final = f"SELECT EXISTS (SELECT 1 FROM ledger_entries WHERE key NOT GLOB '{SOURCE}:*')"  # noqa: S608
_HAS_LEDGER: Final = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ledger_entries')"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """A fresh data folder. ``lock`` is the open file that keeps other demos out; the server inherits it."""

    path: Path
    lock: int

    @property
    def database(self) -> Path:
        """Where the ledger will be."""
        return self.path / DATABASE_FILE

    @property
    def log(self) -> Path:
        """Where the server's log goes."""
        return self.path / LOG_FILE


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[DemoFolder]:
    """The folder, emptied of an earlier demo's files and locked until the body ends.

    Raises :class:`ConfigurationError`, having changed nothing, when the folder holds anything that is not the demo's.
    """
    folder = path.expanduser().absolute()
    with contextlib.ExitStack() as held:
        try:
            lock = _open_marker(folder, path)
            held.callback(os.close, lock)
            _lock(lock, path)
            _remove_earlier_demo(folder, path)
        except OSError as error:
            message = f"The demo cannot use {path}: {error.strerror or error}. Name another folder with --data."
            raise ConfigurationError(message) from error
        yield DemoFolder(folder, lock)


def _open_marker(folder: Path, shown: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = folder / MARKER
    if not marker.is_file() and any(folder.iterdir()):
        message = (
            f"{shown} is not empty, and no demo made it. Nothing was changed. Name a new or empty folder with --data."
        )
        raise ConfigurationError(message)
    return os.open(marker, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(lock: int, shown: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = f"Another demo is running in {shown}. Wait for it, or name another folder with --data."
        raise ConfigurationError(message) from error


def _remove_earlier_demo(folder: Path, shown: Path) -> None:
    """Remove the files that demos make, and no others."""
    database = folder / DATABASE_FILE
    if database.exists() and _holds_others_entries(database):
        message = (
            f"{shown} was made by a demo, but its ledger now holds jobs that are not the demo's. Nothing was changed. "
            "Name another folder with --data."
        )
        raise ConfigurationError(message)
    for file in (*folder.glob(f"{DATABASE_FILE}*"), folder / LOG_FILE):
        file.unlink(missing_ok=True)


def _holds_others_entries(database: Path) -> bool:
    """Whether somebody used this folder for work of their own. What cannot be read counts as theirs."""
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            if not connection.execute(_HAS_LEDGER).fetchone()[0]:
                return False
            return bool(connection.execute(_OTHERS_ENTRIES).fetchone()[0])
    except sqlite3.Error:
        return True
