"""What the checks read: the tables, directly, and what people outside saw."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

EPOCH: Final = 1_790_000_000_000
"""When the store's clock begins."""

Findings = Iterator[str]
Identity = tuple[str, str]
"""A workload and a key."""


class Facts:
    """The tables, read directly, and the history."""

    def __init__(self, simulation: Any) -> None:
        self.simulation = simulation
        self.history = simulation.history
        self.runs = simulation.runs
        self.connection = simulation.connection
        self.workloads = {each.name: each for each in simulation.workloads}
        self.entries: dict[Identity, dict[str, Any]] = {}
        for row in self._rows("SELECT * FROM ledger_entries ORDER BY id"):
            self.entries[row["workload"], row["key"]] = row | {"attempts": json.loads(row["attempts"])}
        self.letters = [
            row | {"attempts": json.loads(row["attempts"]), "decisions": json.loads(row["decisions"])}
            for row in self._rows("SELECT * FROM dead_letters ORDER BY seq")
        ]
        self.moves: dict[Identity, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows("SELECT * FROM watch_moves ORDER BY seq"):
            self.moves[row["workload"], row["key"]].append(row | {"attempts": json.loads(row["attempts"])})
        self.writes = [row | {"body": json.loads(row["body"])} for row in self._rows("SELECT * FROM watch_writes")]
        self.published_as = {row["letter"]: row["review_status"] for row in self._rows("SELECT * FROM watch_letters")}
        """The state that a letter had when it was last put into the queue."""
        self.reviews = self._rows("SELECT * FROM watch_reviews ORDER BY seq")

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return [dict(row) for row in cursor.execute(statement)]

    def generations(self) -> Iterator[tuple[tuple[str, str, int], list[dict[str, Any]]]]:
        """Each generation of each job with its attempts: a dead letter's, or the entry's own."""
        told = set()
        for letter in self.letters:
            identity = (letter["workload"], letter["key"], letter["generation"])
            told.add(identity)
            yield identity, letter["attempts"]
        for (workload, key), entry in self.entries.items():
            if (workload, key, entry["generation"]) not in told:
                yield (workload, key, entry["generation"]), entry["attempts"]


def content_of(body: str) -> object:
    """The content of a body without the number of the attempt. A letter has the number of the last attempt."""
    try:
        content = json.loads(body)
    except ValueError:
        return body
    return {name: value for name, value in content.items() if name != "attempt"} if isinstance(content, dict) else body
