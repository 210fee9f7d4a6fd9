"""The demo's data folder. It must be empty or of an earlier demo, and only one demo may use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
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

_OTHERS_IN_SQLITE: Final = {
    "ledger_entries": f"key NOT GLOB '{SOURCE}:*' AND labels ->> '$.companyId' IS NOT '{COMPANY_ID}' "
    f"AND labels ->> '$.company_id' IS NOT '{COMPANY_ID}'",
    TENANTS: f"companyId IS NOT '{COMPANY_ID}'",
}
"""By table, the condition for rows that are not the demo's."""
_OTHERS_IN_MONGO: Final = {
    "idempotencyKey": {"$exists": True, "$not": re.compile(f"^{re.escape(SOURCE)}:")},
    "companyId": {"$ne": COMPANY_ID},
    "company_id": {"$ne": COMPANY_ID},  # a document's
}


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
                message = f"{path} is not empty, and no demo made it. Nothing was changed. Name a new or empty folder "
                message += "with --data."
                raise ConfigurationError(message)
            lock = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT, 0o600)
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _holds_work_of_others(folder):
                message = f"{path} was made by a demo, but its ledger now holds jobs that are not the demo's, or is in "
                message += "use, or cannot be read. Nothing was changed. Name another folder with --data."
                raise ConfigurationError(message)
            _remove_earlier_demo(folder)
        except BlockingIOError as error:
            message = f"Another demo is running in {path}. Wait for it, or name another folder with --data."
            raise ConfigurationError(message) from error
        except OSError as error:
            message = f"The demo cannot use {path}: {error.strerror or error}. Name another folder with --data."
            raise ConfigurationError(message) from error
        yield lock


def _remove_earlier_demo(folder: Path) -> None:
    """Remove the demo's files, and no others."""
    late = folder / INBOX / LATE_FILE
    files = [folder / name for name in (LOG_FILE, CLUSTER_FILE, KEYS_FILE, f"{DOCUMENTS}/.lock")]
    for file in (*files, late, *folder.glob(f"{DATABASE_FILE}*"), *(folder / MAILBOX).glob("email-*.eml")):
        file.unlink(missing_ok=True)
    for name in (SERVERS, *(f"{DOCUMENTS}/{each}" for each in ("incoming", "results", "uploads", "work"))):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / name)
    for made in (folder / MAILBOX, late.parent, folder / INBOX, folder / DOCUMENTS):
        with contextlib.suppress(OSError):  # it is missing, or holds files of the user
            made.rmdir()


def _holds_work_of_others(folder: Path) -> bool:
    """Whether the folder holds data that is not the demo's. Data that cannot be read counts as such."""
    try:
        database = folder / DATABASE_FILE
        if database.exists() and _others_in_sqlite(database):
            return True
        for data in (folder / SERVERS).glob("mongo-*"):
            with looking_at(data) as client:  # data that a running mongod locks cannot be read
                if any(map(_others_in_mongo, (client[name] for name in client.list_database_names()))):
                    return True
    except (sqlite3.Error, ServerMissing):
        return True
    return False


def _others_in_sqlite(database: Path) -> bool:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        queries = [
            f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {others})"  # noqa: S608 - names and values are ours
            for table, others in _OTHERS_IN_SQLITE.items()
            if table in there
        ]
        return any(connection.execute(query).fetchone()[0] for query in queries)


def _others_in_mongo(database: Any) -> bool:  # noqa: ANN401 - pymongo's Database; the embedded demo does not need pymongo
    if database.name in {"admin", "config", "local"}:
        return False
    if database.name != MONGO_DATABASE or database[TENANTS].find_one({"companyId": {"$ne": COMPANY_ID}}):
        return True
    return any(database[name].find_one(_OTHERS_IN_MONGO) for name in database.list_collection_names())
