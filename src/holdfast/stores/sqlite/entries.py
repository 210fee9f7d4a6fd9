"""Entries for those who ask: reading and counting them, places in the order of fairness keys, cancelling, redacting."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.contracts.ledger import Cancelled, Lease, LedgerEntry, QueuePlaces, Status
from holdfast.contracts.queries import EntryQuery, Page, Slice
from holdfast.contracts.times import first_ms, from_ms
from holdfast.sqlite.database import one, to_json
from holdfast.stores.fields import check_query, names_of, numbers_of, reader, slice_of, texts_with, to_numbers_cursor

from .schema import label_expression, label_index

# --- reading --------------------------------------------------------------------------------------------------

_COLUMNS: Final = ("id", *names_of(LedgerEntry))

# S608: the columns and the conditions are constants of this package or checked names; values are always parameters.
_LIST: Final = f"SELECT {', '.join(_COLUMNS)} FROM ledger_entries"  # noqa: S608
_ENTRY: Final = f"{_LIST} WHERE workload = ? AND key = ?"
_SEEN: Final = _COLUMNS.index("first_seen_at")
_MOST_TO_SORT: Final = 2_000
_KEY_RANGE: Final = "key >= ? AND key < ?"
_AFTER: Final = "(first_seen_at, id) < (?, ?)"
_COUNT_KEYS: Final = f"""
SELECT count(*) FROM (SELECT 1 FROM ledger_entries INDEXED BY ledger_key WHERE workload = ? AND {_KEY_RANGE} LIMIT ?)
"""  # noqa: S608
_ENDED: Final = """
SELECT json_group_array(e.key) FROM json_each(:keys) AS k
CROSS JOIN ledger_entries AS e ON e.workload = :workload AND e.key = k.value
WHERE e.status IN ('processed', 'dead_lettered', 'expired')
"""
_COUNTS: Final = "SELECT status, count(*) FROM ledger_entries WHERE workload = ? GROUP BY status"

_read: Final[Callable[..., LedgerEntry]] = reader(LedgerEntry, stored_as=str, instant=from_ms, nested=json.loads)


def _entry_of(row: Sequence[Any]) -> LedgerEntry:
    return _read(dict(zip(_COLUMNS, row, strict=True)))


def read(connection: sqlite3.Connection, workload: str, key: str) -> LedgerEntry | None:
    """The entry of this idempotency key."""
    row = connection.execute(_ENTRY, (workload, key)).fetchone()
    return None if row is None else _entry_of(row)


def ended(connection: sqlite3.Connection, workload: str, keys: Sequence[str]) -> list[str]:
    """Those of these keys whose entries are terminal: one lookup in the index for each key."""
    found = json.loads(one(connection, _ENDED, {"workload": workload, "keys": to_json(list(keys))}))
    terminal = frozenset(found)
    return [key for key in keys if key in terminal]


def find(connection: sqlite3.Connection, query: EntryQuery, page: Page, indexed: Collection[str]) -> Slice[LedgerEntry]:
    """Entries that match, newest first. ``indexed``: the labels by which entries of the workload can be found."""
    check_query(query, indexed)
    conditions = _conditions(query)
    if page.cursor:
        conditions[_AFTER] = numbers_of(page.cursor)
    values = [value for given in conditions.values() for value in given]
    rows = connection.execute(_listing(_index_for(connection, query), conditions), (*values, page.limit + 1)).fetchall()
    return slice_of(rows, page, _entry_of, _cursor_of)


def _cursor_of(row: Sequence[Any]) -> str:
    return to_numbers_cursor(row[_SEEN], row[0])


def _conditions(query: EntryQuery) -> dict[str, tuple[Any, ...]]:
    """The conditions of a query with their values."""
    conditions: dict[str, tuple[Any, ...]] = {"workload = ?": (query.workload,)}
    if query.status is not None:
        conditions["status = ?"] = (query.status.value,)
    for label, value in query.labels.items():
        conditions[f"{label_expression(label)} = ?"] = (value,)
    if query.key is not None:
        conditions["key = ?"] = (query.key,)
    if query.key_prefix:
        conditions[_KEY_RANGE] = texts_with(query.key_prefix)
    if query.seen_after is not None:
        conditions["first_seen_at >= ?"] = (first_ms(query.seen_after),)
    if query.seen_before is not None:
        conditions["first_seen_at < ?"] = (first_ms(query.seen_before),)
    return conditions


def _listing(index: str, conditions: Iterable[str]) -> str:
    return f"{_LIST} INDEXED BY {index} WHERE {' AND '.join(conditions)} ORDER BY first_seen_at DESC, id DESC LIMIT ?"


def _index_for(connection: sqlite3.Connection, query: EntryQuery) -> str:
    """The index with the fewest entries to look at. All of them but the keys' are in the order of the list.

    SQLite does not know how many jobs a condition leaves. A label leaves the jobs of one customer. Most jobs are
    processed, so every other status leaves fewer. A prefix of keys leaves few jobs or very many: they are counted.
    """
    if query.key is not None or _few_keys(connection, query):
        return "ledger_key"
    if query.labels and query.status in {None, Status.PROCESSED}:
        return label_index(next(iter(query.labels)))
    return "ledger_seen" if query.status is None else "ledger_status_seen"


def _few_keys(connection: sqlite3.Connection, query: EntryQuery) -> bool:
    """Whether the keys that begin so are few enough to sort their jobs."""
    if not query.key_prefix:
        return False
    values = (query.workload, *texts_with(query.key_prefix), _MOST_TO_SORT + 1)
    return bool(one(connection, _COUNT_KEYS, values) <= _MOST_TO_SORT)


def counts(connection: sqlite3.Connection, workload: str) -> dict[str, int]:
    """How many entries have each status."""
    return dict(connection.execute(_COUNTS, (workload,)).fetchall())


# --- for senders ----------------------------------------------------------------------------------------------

# One seek for each fairness key. The conditions repeat those of the partial indexes, so that SQLite can use them.
_ENDS: Final = """
SELECT json_group_array(
    (SELECT max(priority) FROM ledger_entries
     WHERE workload = :workload AND lane = l.value AND status IN ('received', 'processing', 'failed')))
FROM json_each(:fairness_keys) AS l
"""

_FRONT: Final = """
SELECT coalesce(
    (SELECT max(priority) FROM ledger_entries
     WHERE workload = :workload AND lane IS NOT NULL AND status = 'processing'),
    (SELECT min(priority) FROM ledger_entries
     WHERE workload = :workload AND lane IS NOT NULL AND status = 'received'))
"""

# The conditions are those of the partial index, as above. The limit ends the search.
_COUNT_UNSETTLED: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM ledger_entries
    WHERE workload = :workload AND lane >= :first AND lane < :end AND status IN ('received', 'processing', 'failed')
    LIMIT :most)
"""

_CANCEL: Final = """
UPDATE ledger_entries SET withdrawn = 1, deadline = min(coalesce(deadline, :now), :now), updated_at = :now
WHERE workload = :workload AND job_id IN (SELECT value FROM json_each(:job_ids))
  AND (status IN ('received', 'failed') OR (:running AND status = 'processing' AND NOT proceeded))
RETURNING job_id, status
"""

_ASKED_TO_STOP: Final = """
SELECT json_group_array(l.key) FROM json_each(:leases) AS l
CROSS JOIN ledger_entries AS e ON e.workload = :workload AND e.job_id = l.value ->> 0
WHERE e.fence = l.value ->> 1 AND e.status = 'processing' AND e.withdrawn
"""

_REDACT: Final = """
UPDATE ledger_entries SET body = b.value
FROM json_each(:bodies) AS b
WHERE workload = :workload AND job_id = b.key AND status IN ('processed', 'dead_lettered', 'expired')
RETURNING job_id, ledger_entries.key
"""

_REDACT_LETTERS: Final = """
UPDATE dead_letters SET body = b.value
FROM json_each(:bodies) AS b
WHERE workload = :workload AND dead_letters.key = b.key
"""


def queue_places(connection: sqlite3.Connection, workload: str, fairness_keys: Sequence[str]) -> QueuePlaces:
    """The front of the workload, and the last place of each fairness key."""
    front = one(connection, _FRONT, {"workload": workload})
    ends = json.loads(one(connection, _ENDS, {"workload": workload, "fairness_keys": to_json(list(fairness_keys))}))
    return QueuePlaces(
        front or 0,
        {fairness_key: end for fairness_key, end in zip(fairness_keys, ends, strict=True) if end is not None},
    )


def count_unsettled(connection: sqlite3.Connection, workloads: Iterable[str], prefix: str, most: int) -> int:
    """How many jobs of these workloads are not settled, with a fairness key that begins so; ``most`` at most."""
    found, (first, end) = 0, texts_with(prefix)
    for workload in workloads:
        if found >= most:
            break
        parameters = {"workload": workload, "first": first, "end": end, "most": most - found}
        found += one(connection, _COUNT_UNSETTLED, parameters)
    return found


def cancel(
    connection: sqlite3.Connection, now: int, workload: str, job_ids: Sequence[str], *, running: bool
) -> list[Cancelled]:
    """Make the jobs overdue, by compare-and-set on their state."""
    parameters = {"now": now, "workload": workload, "job_ids": to_json(list(job_ids)), "running": running}
    found = {
        job_id: Cancelled.STOPS if status == Status.PROCESSING else Cancelled.ENDS
        for job_id, status in connection.execute(_CANCEL, parameters).fetchall()
    }
    return [found.get(job_id, Cancelled.TOO_LATE) for job_id in job_ids]


def asked_to_stop(connection: sqlite3.Connection, workload: str, leases: Sequence[Lease]) -> list[Lease]:
    """The leases of jobs in work that were cancelled."""
    pairs = to_json([(each.job_id, each.fence) for each in leases])
    found = json.loads(one(connection, _ASKED_TO_STOP, {"leases": pairs, "workload": workload}))
    return [leases[position] for position in found]


def redact(connection: sqlite3.Connection, workload: str, bodies: Mapping[str, str]) -> list[str]:
    """Replace the bodies of settled jobs and of their letters. Letters are found by their entries' keys."""
    parameters = {"workload": workload, "bodies": to_json(dict(bodies))}
    changed = dict(connection.execute(_REDACT, parameters).fetchall())
    if changed:
        letters = {key: bodies[job_id] for job_id, key in changed.items()}
        connection.execute(_REDACT_LETTERS, {"workload": workload, "bodies": to_json(letters)})
    return [job_id for job_id in bodies if job_id in changed]
