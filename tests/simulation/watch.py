"""Triggers that write down every move, so that the checker sees what happened and not only how it ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

_WATCH: Final = (
    """
    CREATE TABLE watch_moves (seq INTEGER PRIMARY KEY, workload TEXT, key TEXT, old TEXT, new TEXT, old_fence INTEGER,
        new_fence INTEGER, old_generation INTEGER, new_generation INTEGER, at INTEGER, deadline INTEGER,
        attempts TEXT, lease_until INTEGER)
    """,
    """
    CREATE TRIGGER watch_update AFTER UPDATE OF status ON ledger_entries BEGIN
        INSERT INTO watch_moves VALUES (NULL, NEW.workload, NEW.key, OLD.status, NEW.status, OLD.fence, NEW.fence,
            OLD.generation, NEW.generation, NEW.updated_at, NEW.deadline, NEW.attempts, OLD.lease_until);
    END
    """,
    """
    CREATE TRIGGER watch_insert AFTER INSERT ON ledger_entries BEGIN
        INSERT INTO watch_moves VALUES (NULL, NEW.workload, NEW.key, NULL, NEW.status, NULL, NEW.fence, NULL,
            NEW.generation, NEW.updated_at, NEW.deadline, NEW.attempts, NULL);
    END
    """,
    "CREATE TABLE watch_writes (seq INTEGER PRIMARY KEY, collection TEXT, key TEXT, body TEXT)",
    "CREATE TABLE watch_reviews (seq INTEGER PRIMARY KEY, letter TEXT, old TEXT, new TEXT)",
    """
    CREATE TRIGGER watch_review AFTER UPDATE OF review_status ON dead_letters BEGIN
        INSERT INTO watch_reviews VALUES (NULL, NEW.id, OLD.review_status, NEW.review_status);
    END
    """,
    "CREATE TABLE watch_letters (seq INTEGER PRIMARY KEY, letter TEXT, review_status TEXT)",
    """
    CREATE TRIGGER watch_letter AFTER INSERT ON queue_jobs WHEN NEW.job_id LIKE 'dl_%' BEGIN
        INSERT INTO watch_letters
        SELECT NULL, NEW.job_id, review_status FROM dead_letters WHERE id = NEW.job_id;
    END
    """,
)

_WATCH_DOCUMENTS: Final = """
CREATE TRIGGER watch_{table}_{verb} AFTER {verb} ON {table} BEGIN
    INSERT INTO watch_writes VALUES (NULL, '{table}', NEW.{key}, NEW.body);
END
"""


def install_watch(connection: sqlite3.Connection, workloads: Sequence[Any]) -> None:
    """From now on, log the moves of entries and letters, the publishing of letters, every write of a document."""
    for statement in _WATCH:
        connection.execute(statement)
    for workload in workloads:
        for collection in workload.collections:
            for verb in ("INSERT", "UPDATE"):
                names = {"table": collection.name, "verb": verb, "key": collection.key}
                connection.execute(_WATCH_DOCUMENTS.format(**names))
