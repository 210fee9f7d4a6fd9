"""Fills the SQLite store: real jobs go through the program, and SQL copies them with other keys.

A few hundred settled events, dead letters and waiting events are made by ``holdfast`` itself. Copies differ in the key,
the id, the fingerprint and, if they are settled, the time of arrival, which is spread over the past, ten a second.
Everything else, and every index, is as the program writes it.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.gateway import generate_load, running

SAMPLE: Final = 500
_SETTLED_FROM: Final = 100_000_000
_WAITING_FROM: Final = 700_000_000
"""Where the numbers of the copies begin. Those of measured events are smaller."""
_PORTION: Final = 50_000
_LETTERS_EVERY: Final = 100
"""One dead letter for so many settled entries."""
_APART_MS: Final = 100
_DUE_SPREAD: Final = 36_000
_DEADLINE_SECONDS: Final = 120.0

_NUMBERS: Final = """
WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :end),
pairs AS (
    SELECT n, printf('evt_%09d', n) AS new, s.labels ->> '$.eventId' AS old, s.*
    FROM numbers CROSS JOIN temp.chosen AS s ON s.number = n % (SELECT count(*) FROM temp.chosen)
)
"""
_WITH_KEY: Final = frozenset({"key", "job_id", "body", "labels", "data"})
_TIMES: Final = frozenset({"first_seen_at", "updated_at", "created_at", "expires_at", "not_before"})


def make_sample(data: Path) -> None:
    """Real events: settled, dead-lettered, and waiting."""
    failing = {
        "COURIER_DOWNSTREAM_URL": "http://127.0.0.1:9/",
        "COURIER_DOWNSTREAM_SECRET": secrets.token_urlsafe(32),
        "RETRY_MAX_ATTEMPTS": "1",
    }
    with running("up", data) as gateway:
        generate_load(gateway, count=SAMPLE, connections=10)
        _wait(data, "SELECT count(*) = 0 FROM queue_jobs")
    with running("up", data, settings=failing) as gateway:
        generate_load(gateway, count=20, connections=5, first=10_000)
        _wait(data, "SELECT count(*) >= 20 FROM dead_letters")
    with running("api", data) as gateway:
        generate_load(gateway, count=SAMPLE, connections=10, first=20_000)
    with contextlib.closing(sqlite3.connect(data / "holdfast.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(_sample_of(data)),))


def _sample_of(data: Path) -> Path:
    return data.parent / "sample.db"


def forget_waiting(data: Path) -> None:
    """Delete what waits, from the ledger and from the queue."""
    with contextlib.closing(sqlite3.connect(data / "holdfast.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("DELETE FROM queue_jobs")
        connection.execute("DELETE FROM ledger_entries WHERE workload = 'courier' AND status = 'received'")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill(data: Path, *, settled: int, waiting: int, tell: Callable[[str], None]) -> None:
    """Copy until the store holds so many settled entries, and so many that wait."""
    began = time.monotonic()
    with contextlib.closing(sqlite3.connect(data / "holdfast.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        connection.execute("ATTACH ? AS sample", (str(_sample_of(data)),))
        present = _count(connection, "status IN ('processed', 'dead_lettered')")
        letters = int(connection.execute("SELECT count(*) FROM dead_letters").fetchone()[0])
        queued = int(connection.execute("SELECT count(*) FROM queue_jobs").fetchone()[0])
        dead = max(0, settled // _LETTERS_EVERY - letters)
        _copy(connection, "processed", _SETTLED_FROM + present, settled - present - dead)
        first = _SETTLED_FROM + 300_000_000 + letters
        _copy(connection, "dead_lettered", first, dead)
        _copy_letters(connection, first, dead)
        first = _next_waiting(connection)
        _copy(connection, "received", first, waiting - queued)
        _copy_queue(connection, first, waiting - queued)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    tell(f"filled to {settled:,} settled, {waiting:,} waiting in {time.monotonic() - began:,.0f} s")


def _copy(connection: sqlite3.Connection, status: str, first: int, count: int) -> None:
    """Copy the entries of a status ``count`` times, each under another number."""
    _choose(connection, f"* FROM sample.ledger_entries WHERE workload = 'courier' AND status = '{status}'")
    # What waits has just arrived: an event that came before it occurred would be refused.
    _insert(connection, "ledger_entries", first, count, past=status != "received")


def _copy_letters(connection: sqlite3.Connection, first: int, count: int) -> None:
    _choose(connection, "* FROM sample.dead_letters")
    _insert(connection, "dead_letters", first, count)


def _copy_queue(connection: sqlite3.Connection, first: int, count: int) -> None:
    """What waits is in the queue too. The labels, which name the event, are the entry's."""
    _choose(
        connection,
        "e.labels AS labels, q.* FROM sample.queue_jobs AS q "
        "JOIN sample.ledger_entries AS e ON e.workload = 'courier' AND e.job_id = q.job_id",
    )
    _insert(connection, "queue_jobs", first, count, past=False)


def _choose(connection: sqlite3.Connection, what: str) -> None:
    connection.execute("DROP TABLE IF EXISTS temp.chosen")
    connection.execute(f"CREATE TEMP TABLE chosen AS SELECT row_number() OVER () - 1 AS number, {what}")
    connection.execute("CREATE UNIQUE INDEX temp.chosen_number ON chosen (number)")


def _insert(connection: sqlite3.Connection, table: str, first: int, count: int, *, past: bool = True) -> None:
    """Insert copies of what was chosen; with ``past``, as if they had arrived one after the other until now."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    columns = [name for name in columns if name not in {"id", "seq"} or (table == "dead_letters" and name == "id")]
    shift = f"(:last - n) * {_APART_MS}" if past else "0"
    values = ", ".join(_value(table, name, shift) for name in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) {_NUMBERS} SELECT {values} FROM pairs"  # noqa: S608 - our own names
    end = first + max(0, count)
    for start in range(first, end, _PORTION):
        until = min(end, start + _PORTION)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(statement, {"first": start, "end": until, "last": end})
        connection.execute("COMMIT")


def _value(table: str, name: str, shift: str) -> str:
    if table == "dead_letters" and name == "id":
        return "'dl_' || lower(hex(randomblob(12)))"
    if name == "fingerprint":
        return "lower(hex(randomblob(32)))"
    if name in _WITH_KEY:
        return f"replace({name}, old, new)"
    if name in _TIMES:
        return f"{name} - {shift}"
    if name == "due_at":  # when maintenance looks whether the queue lost a job: not for all of them in one second
        return f"due_at + n % {_DUE_SPREAD} * {_APART_MS}"
    return name


def _count(connection: sqlite3.Connection, condition: str) -> int:
    query = f"SELECT count(*) FROM ledger_entries WHERE workload = 'courier' AND {condition}"  # noqa: S608 - our own
    return int(connection.execute(query).fetchone()[0])


def _next_waiting(connection: sqlite3.Connection) -> int:
    """Copies of an earlier backlog that were worked keep their numbers."""
    query = "SELECT max(key) FROM ledger_entries WHERE workload = 'courier' AND key >= ? AND key < ?"
    ends = (f"courier-bench:evt_{_WAITING_FROM:09d}", "courier-bench:evt_9")
    last = connection.execute(query, ends).fetchone()[0]
    return _WAITING_FROM if last is None else int(last.rpartition("_")[2]) + 1


def _wait(data: Path, query: str) -> None:
    end = time.monotonic() + _DEADLINE_SECONDS
    with contextlib.closing(sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True)) as connection:
        while not connection.execute(query).fetchone()[0]:
            if time.monotonic() > end:
                message = f"The sample was not made in time: {query}"
                raise RuntimeError(message)
            time.sleep(0.05)
