"""What an earlier demo left in its folder: told apart from what is somebody's own, and removed."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

from holdfast.cli.servers import ServerMissing, looking_at
from holdfast.config.email_keys import KEYS_FILE
from holdfast.contracts.tenants import TENANTS
from holdfast.wiring import DATABASE_FILE

SOURCE: Final = "demo-courier"
"""The courier of the demo. Every idempotency key of the demo starts with it, so its data can be told from yours."""

COMPANY_ID: Final = "de300000-0000-4000-8000-000000000001"
"""The tenant of the demo. Every email and every document of the demo is its, so these can be told from yours, too."""

LOG_FILE: Final = "server.log"
SERVERS: Final = "servers"
"""Where Valkey and mongod have their data, under the demo's folder."""
MAILBOX: Final = "mailbox"
"""Where the mail server of the demo puts the emails that it takes."""
INBOX: Final = "inbox"
"""The folder of the server's machine in which a job of the demo may name a file."""
DOCUMENTS: Final = "documents"
"""Where Holdfast keeps the documents of the demo, and what it read in them."""
LATE_FILE: Final = "samples/missing.pdf"
"""In the inbox; at first it is not there."""
CLUSTER_FILE: Final = "cluster.toml"
"""Settings with which a command finds the demo's servers."""
MONGO_DATABASE: Final = "holdfast_demo"

_OTHERS_ROWS: Final = {
    "ledger_entries": f"key NOT GLOB '{SOURCE}:*' AND labels ->> '$.companyId' IS NOT '{COMPANY_ID}' "
    f"AND labels ->> '$.company_id' IS NOT '{COMPANY_ID}'",
    TENANTS: f"companyId IS NOT '{COMPANY_ID}'",
}
"""By table, what makes a row of it somebody else's."""
_HAS_TABLE: Final = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?)"
_OTHERS_KEY: Final = {
    "idempotencyKey": {"$exists": True, "$not": re.compile(f"^{re.escape(SOURCE)}:")},
    "companyId": {"$ne": COMPANY_ID},
    "company_id": {"$ne": COMPANY_ID},  # a document's
}
_FILES: Final = (LOG_FILE, CLUSTER_FILE, KEYS_FILE, f"{DOCUMENTS}/.lock")
_OF_DOCUMENTS: Final = ("incoming", "results", "uploads", "work")
_OF_MONGODB: Final = {"admin", "config", "local"}


def holds_work_of_others(folder: Path) -> bool:
    """Whether somebody used this folder for work of their own. What cannot be read counts as theirs."""
    database = folder / DATABASE_FILE
    if database.exists() and _in_sqlite(database):
        return True
    return any(_in_mongo(data) for data in (folder / SERVERS).glob("mongo-*"))


def remove(folder: Path) -> None:
    """Remove the files that demos make, and no others."""
    emails = (folder / MAILBOX).glob("email-*.eml")
    late = folder / INBOX / LATE_FILE
    for file in (*folder.glob(f"{DATABASE_FILE}*"), *emails, late, *(folder / name for name in _FILES)):
        file.unlink(missing_ok=True)
    for kept in (folder / SERVERS, *(folder / DOCUMENTS / name for name in _OF_DOCUMENTS)):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(kept)
    for made in (folder / MAILBOX, late.parent, folder / INBOX, folder / DOCUMENTS):
        with contextlib.suppress(OSError):  # it is not there, or holds something of yours
            made.rmdir()


def _in_sqlite(database: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            tables = [name for name in _OTHERS_ROWS if connection.execute(_HAS_TABLE, (name,)).fetchone()[0]]
            return any(connection.execute(_others_in_table(name)).fetchone()[0] for name in tables)
    except sqlite3.Error:
        return True


def _others_in_table(name: str) -> str:
    return f"SELECT EXISTS (SELECT 1 FROM {name} WHERE {_OTHERS_ROWS[name]})"  # noqa: S608 - names and values are ours


def _in_mongo(data: Path) -> bool:
    """A mongod that still runs there keeps others from its data: then it is not ours to remove, either."""
    try:
        with looking_at(data) as client:
            return any(_others_in(client[name]) for name in client.list_database_names() if name not in _OF_MONGODB)
    except ServerMissing:
        return True


def _others_in(database: Any) -> bool:  # noqa: ANN401 - pymongo's Database, which the embedded demo does without
    if database.name != MONGO_DATABASE:
        return True
    if database[TENANTS].find_one({"companyId": {"$ne": COMPANY_ID}}):
        return True
    return any(database[name].find_one(_OTHERS_KEY) for name in database.list_collection_names())
