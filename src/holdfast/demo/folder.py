"""The demo's data folder. It must be empty or of an earlier demo, and only one demo may use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.contracts.errors import ConfigurationError
from holdfast.wiring import DATABASE_FILE

from . import leftovers
from .leftovers import CLUSTER_FILE, DOCUMENTS, INBOX, LOG_FILE, MAILBOX, SERVERS, SOURCE

__all__ = ["LOG_FILE", "MARKER", "SOURCE", "DemoFolder", "claimed"]

MARKER: Final = ".made-by-holdfast-demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """A fresh data folder. ``lock`` is the open lock file against other demos; the server inherits it."""

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

    @property
    def mailbox(self) -> Path:
        """Where the mail server stores the emails that it accepts."""
        return self.path / MAILBOX

    @property
    def inbox(self) -> Path:
        """The folder of files that jobs may name."""
        return self.path / INBOX

    @property
    def documents(self) -> Path:
        """Where the server stores documents and their results."""
        return self.path / DOCUMENTS

    @property
    def servers(self) -> Path:
        """Where the servers of a cluster store their data."""
        return self.path / SERVERS

    @property
    def cluster_file(self) -> Path:
        """The file with the addresses of these servers, for commands."""
        return self.path / CLUSTER_FILE


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[DemoFolder]:
    """The folder, without the files of an earlier demo, locked during the body.

    If the folder holds anything that is not the demo's, raises :class:`ConfigurationError` and changes nothing.
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
    if leftovers.holds_work_of_others(folder):
        message = (
            f"{shown} was made by a demo, but its ledger now holds jobs that are not the demo's, or is in use, or "
            "cannot be read. Nothing was changed. Name another folder with --data."
        )
        raise ConfigurationError(message)
    leftovers.remove(folder)
