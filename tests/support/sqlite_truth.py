"""The truth of the embedded deployment: one SQLite file with the witness's triggers in it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.features.courier.workload import ACTIVE_SHIPMENTS

from .counted_work import EFFECTS
from .truth import Truth


def read_file(database: Path) -> Truth:
    """Everything, on a store that has been drained."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return _read(connection)


def _read(connection: sqlite3.Connection) -> Truth:
    intact = connection.execute("PRAGMA integrity_check").fetchone()[0]
    entries = {}
    for row in connection.execute("SELECT * FROM ledger_entries"):
        entry = dict(row) | {"attempts": json.loads(row["attempts"]), "body": json.loads(row["body"])}
        entries[row["workload"], row["key"]] = entry
    letters = [
        dict(row) | {"attempts": json.loads(row["attempts"]), "decisions": json.loads(row["decisions"])}
        for row in connection.execute("SELECT * FROM dead_letters ORDER BY seq")
    ]
    writes = [
        {"collection": row["collection"], "id": row["id"], "document": json.loads(row["body"])}
        for row in connection.execute("SELECT * FROM witness_effects ORDER BY seq")
    ]
    # S608: names that this package's own code declares.
    effects = {
        row[0]: json.loads(row[1])
        for row in connection.execute(f"SELECT effectId, body FROM {EFFECTS}")  # noqa: S608
    }
    shipments = {
        row[0]: json.loads(row[1])
        for row in connection.execute(f"SELECT shipmentId, body FROM {ACTIVE_SHIPMENTS}")  # noqa: S608
    }
    return Truth(
        entries=entries,
        letters=letters,
        moves=[dict(row) for row in connection.execute("SELECT * FROM witness_moves ORDER BY seq")],
        writes=writes,
        queued=[tuple(row) for row in connection.execute("SELECT queue, job_id FROM queue_jobs")],
        effects=effects,
        shipments=shipments,
        damage=None if intact == "ok" else intact,
    )
