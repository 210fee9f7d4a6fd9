"""What an earlier demo left in its folder: told apart from what is somebody's own, and removed."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

from holdfast.cli.servers import ServerMissing, looking_at
from holdfast.wiring import DATABASE_FILE

SOURCE: Final = "demo-courier"
"""The courier of the demo. Every idempotency key of the demo starts with it, so its data can be told from yours."""

LOG_FILE: Final = "server.log"
SERVERS: Final = "servers"
"""Where Valkey and mongod have their data, under the demo's folder."""
CLUSTER_FILE: Final = "cluster.toml"
"""Settings with which a command finds the demo's servers."""
MONGO_DATABASE: Final = "holdfast_demo"

_OTHERS_ENTRIES: Final = f"SELECT EXISTS (SELECT 1 FROM ledger_entries WHERE key NOT GLOB '{SOURCE}:*')"  # noqa: S608
_HAS_LEDGER: Final = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ledger_entries')"
_OTHERS_KEY: Final = {"idempotencyKey": {"$exists": True, "$not": re.compile(f"^{re.escape(SOURCE)}:")}}
_OF_MONGODB: Final = {"admin", "config", "local"}


def holds_work_of_others(folder: Path) -> bool:
    """Whether somebody used this folder for work of their own. What cannot be read counts as theirs."""
    database = folder / DATABASE_FILE
    if database.exists() and _in_sqlite(database):
        return True
    return any(_in_mongo(data) for data in (folder / SERVERS).glob("mongo-*"))


def remove(folder: Path) -> None:
    """Remove the files that demos make, and no others."""
    for file in (*folder.glob(f"{DATABASE_FILE}*"), folder / LOG_FILE, folder / CLUSTER_FILE):
        file.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / SERVERS)


def _in_sqlite(database: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            if not connection.execute(_HAS_LEDGER).fetchone()[0]:
                return False
            return bool(connection.execute(_OTHERS_ENTRIES).fetchone()[0])
    except sqlite3.Error:
        return True


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
    return any(database[name].find_one(_OTHERS_KEY) for name in database.list_collection_names())
