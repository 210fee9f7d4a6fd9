"""Triggers that write down, in the very transaction, every move of an entry and every write of an effect.

The processes under test know nothing of them. What a transaction did and its trace here commit together or not at all,
so the trace is complete and in the order of the commits.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from holdfast.features.courier.workload import ACTIVE_SHIPMENTS

from .counted_work import EFFECTS

_TRANSITIONS: Final = """
CREATE TABLE witness_moves (
    seq INTEGER PRIMARY KEY, workload TEXT, key TEXT, start TEXT, "end" TEXT,
    old_generation INTEGER, generation INTEGER, old_fence INTEGER, fence INTEGER
);
CREATE TRIGGER witness_entry AFTER INSERT ON ledger_entries BEGIN
    INSERT INTO witness_moves (workload, key, "end", generation, fence)
    VALUES (new.workload, new.key, new.status, new.generation, new.fence);
END;
CREATE TRIGGER witness_move AFTER UPDATE OF status, generation, fence ON ledger_entries BEGIN
    INSERT INTO witness_moves (workload, key, start, "end", old_generation, generation, old_fence, fence)
    VALUES (new.workload, new.key, old.status, new.status, old.generation, new.generation, old.fence, new.fence);
END;
CREATE TRIGGER witness_loss AFTER DELETE ON ledger_entries BEGIN
    INSERT INTO witness_moves (workload, key, start, old_generation, old_fence)
    VALUES (old.workload, old.key, old.status, old.generation, old.fence);
END;
CREATE TABLE witness_effects (seq INTEGER PRIMARY KEY, collection TEXT, id TEXT, body TEXT);
"""

_EFFECT: Final = """
CREATE TRIGGER witness_{table}_{verb} AFTER {verb} ON {table} BEGIN
    INSERT INTO witness_effects (collection, id, body) VALUES ('{table}', new.{key}, new.body);
END;
"""


def install(database: Path) -> None:
    """Once, when the tables are there and before the first process starts."""
    connection = sqlite3.connect(database)
    try:
        connection.executescript(_TRANSITIONS)
        for table, key in ((EFFECTS, "effectId"), (ACTIVE_SHIPMENTS, "shipmentId")):
            for verb in ("INSERT", "UPDATE"):
                connection.executescript(_EFFECT.format(table=table, key=key, verb=verb))
    finally:
        connection.close()
