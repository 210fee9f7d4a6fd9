"""The demo's data folder. It must be empty or of an earlier demo, and only one demo may use it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.cli.servers import ServerMissing, looking_at
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.tenants import TENANTS
from holdfast.features.email.keys import KEYS_FILE
from holdfast.wiring import DATABASE_FILE

# The marks of the demo's data: each idempotency key of an event begins with the courier's name, and the tenant owns
# each email and each document.
SOURCE: Final = "demo-courier"
COMPANY_ID: Final = "de300000-0000-4000-8000-000000000001"

MARKER: Final = ".made-by-holdfast-demo"
LOG_FILE: Final = "server.log"
MAILBOX: Final = "mailbox"  # the emails that the demo's mail server accepted
DOCUMENTS: Final = "documents"  # the documents of the demo and their results
INBOX: Final = "inbox"  # files that jobs of the demo may name
LATE_FILE: Final = "samples/missing.pdf"  # in the inbox; missing at first
SERVERS: Final = "servers"  # the data of Valkey and mongod
CLUSTER_FILE: Final = "cluster.toml"  # the addresses of Valkey and mongod, for commands
MONGO_DATABASE: Final = "holdfast_demo"

# What a demo makes: files, whole folders, and folders in which the user may have files, too.
_FILES: Final = (LOG_FILE, CLUSTER_FILE, KEYS_FILE, f"{DATABASE_FILE}*", f"{MAILBOX}/email-*.eml", f"{DOCUMENTS}/.lock")
_FOLDERS: Final = (SERVERS, *(f"{DOCUMENTS}/{each}" for each in ("incoming", "results", "uploads", "work")))
_SHARED_FOLDERS: Final = (MAILBOX, Path(INBOX, LATE_FILE).parent, INBOX, DOCUMENTS)

_OWNERS_IN_SQLITE: Final = {
    "ledger_entries": "SELECT key AS idempotencyKey, labels ->> '$.companyId' AS companyId, "
    "labels ->> '$.company_id' AS company_id FROM ledger_entries",
    TENANTS: f"SELECT companyId FROM {TENANTS}",  # noqa: S608 - the name is ours
}
"""By table, the query for the fields that tell whose each row is. Records in MongoDB have the same fields."""


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[int]:
    """Lock the folder during the body, without the files of an earlier demo; yields the descriptor of the lock.

    If the folder holds anything that is not the demo's, raises :class:`ConfigurationError` and changes nothing.
    """
    folder = path.expanduser().absolute()
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (folder / MARKER).is_file() and any(folder.iterdir()):
                raise _refused(path, "is not empty, and no demo made it. Nothing was changed")
            lock = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT, 0o600)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _holds_work_of_others(folder):
                why = "its ledger now holds jobs that are not the demo's, or is in use, or cannot be read"
                raise _refused(path, f"was made by a demo, but {why}. Nothing was changed")
            _remove_earlier_demo(folder)
        except BlockingIOError as error:
            raise _refused(path, "is in use: another demo is running in it") from error
        except OSError as error:
            raise _refused(path, f"cannot be used: {error.strerror or error}") from error
        yield lock


def _refused(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"{path} {why}. Name a new or empty folder with --data.")


def _remove_earlier_demo(folder: Path) -> None:
    """Remove the demo's files, and no others."""
    for file in itertools.chain.from_iterable(map(folder.glob, (*_FILES, f"{INBOX}/{LATE_FILE}"))):
        file.unlink(missing_ok=True)
    for name in _FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / name)
    for shared in _SHARED_FOLDERS:
        with contextlib.suppress(OSError):  # it is missing, or holds files of the user
            (folder / shared).rmdir()


def _holds_work_of_others(folder: Path) -> bool:
    """Whether the folder holds data that is not the demo's. Data that cannot be read counts as such."""
    try:
        return not all(
            COMPANY_ID in {each.get("companyId"), each.get("company_id")}
            or str(each.get("idempotencyKey")).startswith(f"{SOURCE}:")
            for each in itertools.chain(_in_sqlite(folder / DATABASE_FILE), _in_mongo(folder / SERVERS))
        )
    except (sqlite3.Error, ServerMissing):
        return True


def _in_sqlite(database: Path) -> Iterator[Mapping[str, Any]]:
    """All jobs and tenants in this file, if it is there."""
    if not database.exists():
        return
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        for table in _OWNERS_IN_SQLITE.keys() & there:
            yield from map(dict, connection.execute(_OWNERS_IN_SQLITE[table]))


def _in_mongo(servers: Path) -> Iterator[Mapping[str, Any]]:
    """All jobs and tenants in the demo's database, and one that is nobody's for each other database."""
    for data in servers.glob("mongo-*"):
        with looking_at(data) as client:  # data that a running mongod locks cannot be read
            for name in set(client.list_database_names()) - {"admin", "config", "local"}:
                if name != MONGO_DATABASE:
                    yield {}
                yield from client[name][TENANTS].find()
                for collection in client[name].list_collection_names():
                    yield from client[name][collection].find({"idempotencyKey": {"$exists": True}})
