"""The files of an earlier demo: they are distinguished from other data, and removed."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

from holdfast.cli.servers import ServerMissing, looking_at
from holdfast.contracts.tenants import TENANTS
from holdfast.features.email.keys import KEYS_FILE
from holdfast.wiring import DATABASE_FILE

SOURCE: Final = "demo-courier"
"""The courier of the demo. Every idempotency key of the demo starts with it, which marks the demo's data."""

COMPANY_ID: Final = "de300000-0000-4000-8000-000000000001"
"""The tenant of the demo. It owns every email and every document of the demo, which marks the demo's data, too."""

LOG_FILE: Final = "server.log"
SERVERS: Final = "servers"
"""The data of Valkey and mongod, in the demo's folder."""
MAILBOX: Final = "mailbox"
"""The emails that the demo's mail server accepted."""
INBOX: Final = "inbox"
"""The folder with files that jobs of the demo may name."""
DOCUMENTS: Final = "documents"
"""The documents of the demo and their results."""
LATE_FILE: Final = "samples/missing.pdf"
"""In the inbox; missing at first."""
CLUSTER_FILE: Final = "cluster.toml"
"""The addresses of the demo's servers, for commands."""
MONGO_DATABASE: Final = "holdfast_demo"

_OTHERS_ROWS: Final = {
    "ledger_entries": f"key NOT GLOB '{SOURCE}:*' AND labels ->> '$.companyId' IS NOT '{COMPANY_ID}' "
    f"AND labels ->> '$.company_id' IS NOT '{COMPANY_ID}'",
    TENANTS: f"companyId IS NOT '{COMPANY_ID}'",
}
"""By table, the condition for rows that are not the demo's."""
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
    """Whether the folder holds data that is not the demo's. Data that cannot be read counts as such."""
    database = folder / DATABASE_FILE
    if database.exists() and _in_sqlite(database):
        return True
    return any(_in_mongo(data) for data in (folder / SERVERS).glob("mongo-*"))


def remove(folder: Path) -> None:
    """Remove the demo's files, and no others."""
    emails = (folder / MAILBOX).glob("email-*.eml")
    late = folder / INBOX / LATE_FILE
    for file in (*folder.glob(f"{DATABASE_FILE}*"), *emails, late, *(folder / name for name in _FILES)):
        file.unlink(missing_ok=True)
    for kept in (folder / SERVERS, *(folder / DOCUMENTS / name for name in _OF_DOCUMENTS)):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(kept)
    for made in (folder / MAILBOX, late.parent, folder / INBOX, folder / DOCUMENTS):
        with contextlib.suppress(OSError):  # it is missing, or holds files of the user
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
    """Whether MongoDB holds data that is not the demo's. Data that a running mongod locks counts as such."""
    try:
        with looking_at(data) as client:
            return any(_others_in(client[name]) for name in client.list_database_names() if name not in _OF_MONGODB)
    except ServerMissing:
        return True


def _others_in(database: Any) -> bool:  # noqa: ANN401 - pymongo's Database; the embedded demo does not need pymongo
    if database.name != MONGO_DATABASE:
        return True
    if database[TENANTS].find_one({"companyId": {"$ne": COMPANY_ID}}):
        return True
    return any(database[name].find_one(_OTHERS_KEY) for name in database.list_collection_names())
