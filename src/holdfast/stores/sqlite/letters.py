"""Dead letters: finding them, and the steps of their review (I9)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.ledger import NewEntry, RecordedAs
from holdfast.contracts.queries import LetterQuery, Page, Slice
from holdfast.contracts.times import from_ms, to_ms
from holdfast.contracts.transitions import REVIEW_STEPS
from holdfast.sqlite.database import one, to_json
from holdfast.stores.fields import MOST_BODY_BYTES, names_of, number_of, reader, slice_of, to_cursor

from .ledger import known_queue, record
from .records import RecordTables

_COLUMNS: Final = names_of(DeadLetter)
_LISTED_COLUMNS: Final = names_of(ListedLetter)

# S608: the column list and the conditions below are constants of this package; values are always parameters.
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM dead_letters"  # noqa: S608
_LETTER: Final = f"{_SELECT} WHERE id = ?"
_LIST: Final = f"SELECT seq, {', '.join(_LISTED_COLUMNS)} FROM dead_letters"  # noqa: S608

_UNPUBLISHED: Final = f"""
{_SELECT} WHERE workload = ? AND published = 0 AND review_status = 'pending' ORDER BY seq LIMIT ?
"""

_MARK_PUBLISHED: Final = """
UPDATE dead_letters SET published = 1 WHERE id IN (SELECT value FROM json_each(?))
"""

_OUTDATED: Final = """
SELECT id FROM dead_letters
WHERE workload = ? AND published = 1 AND review_status IN ('replayed', 'closed') ORDER BY seq LIMIT ?
"""

_MARK_UNPUBLISHED: Final = """
UPDATE dead_letters SET published = 0 WHERE id IN (SELECT value FROM json_each(?))
"""

# A replayed or closed letter counts as published even if it was not: another process may be publishing it right now.
_STEP: Final = """
UPDATE dead_letters
SET review_status = :step, updated_at = :now, published = iif(:step IN ('replayed', 'closed'), 1, published),
    decisions = json_insert(
        decisions, '$[#]', json_object('step', :step, 'actor', :actor, 'reason', :reason, 'at', :now))
WHERE id IN (SELECT value FROM json_each(:ids)) AND review_status IN (SELECT value FROM json_each(:starts))
RETURNING id
"""

_NEXT_GENERATION: Final = """
UPDATE ledger_entries
SET status = 'received', generation = ledger_entries.generation + 1, attempts = '[]', attempt_count = 0,
    not_before = :now, due_at = :now + :grace, withdrawn = 0,
    deadline = iif(ledger_entries.mortal, ledger_entries.first_seen_at, :now) + ledger_entries.life,
    last_error_code = NULL, last_error_message = NULL, note = NULL, result = NULL, progress = NULL,
    expires_at = NULL, updated_at = :now
FROM dead_letters AS l
WHERE l.id = :letter AND ledger_entries.workload = l.workload AND ledger_entries.key = l.key
  AND ledger_entries.generation = l.generation AND ledger_entries.status = 'dead_lettered'
"""


_read: Final[Callable[..., DeadLetter]] = reader(DeadLetter, stored_as=str, instant=from_ms, nested=json.loads)
_read_listed: Final[Callable[..., ListedLetter]] = reader(
    ListedLetter, stored_as=str, instant=from_ms, nested=json.loads
)


def _letter_of(row: Sequence[Any]) -> DeadLetter:
    return _read(dict(zip(_COLUMNS, row, strict=True)))


def _listed_letter_of(row: Sequence[Any]) -> ListedLetter:
    _, *values = row
    return _read_listed(dict(zip(_LISTED_COLUMNS, values, strict=True)))


def read(connection: sqlite3.Connection, letter_id: str) -> DeadLetter | None:
    """One dead letter."""
    row = connection.execute(_LETTER, (letter_id,)).fetchone()
    return None if row is None else _letter_of(row)


def find(connection: sqlite3.Connection, query: LetterQuery, page: Page) -> Slice[ListedLetter]:
    """Dead letters that match, oldest first."""
    conditions, values = _conditions(query)
    if page.cursor:
        conditions.append("seq > ?")
        values.append(number_of(page.cursor))
    statement = f"{_LIST}{_where(conditions)} ORDER BY seq LIMIT ?"
    rows = connection.execute(statement, (*values, page.limit + 1)).fetchall()
    return slice_of(rows, page, _listed_letter_of, lambda row: to_cursor(row[0]))


def count(connection: sqlite3.Connection, query: LetterQuery) -> int:
    """How many dead letters match."""
    conditions, values = _conditions(query)
    return int(one(connection, f"SELECT count(*) FROM dead_letters{_where(conditions)}", values))  # noqa: S608


def _conditions(query: LetterQuery) -> tuple[list[str], list[Any]]:
    wanted: tuple[tuple[str, Any], ...] = (
        ("workload = ?", query.workload),
        ("review_status = ?", query.review_status and query.review_status.value),
        ("reason_code = ?", query.reason_code),
        ("key = ?", query.key),
        ("created_at > ?", query.created_after and to_ms(query.created_after)),
        ("created_at < ?", query.created_before and to_ms(query.created_before)),
        *(
            condition
            for name, value in query.labels.items()
            for condition in (
                ("EXISTS (SELECT 1 FROM json_each(labels) WHERE json_each.key = ? AND value = ?)", (name, value)),
            )
        ),
    )
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in wanted:
        if value is None:
            continue
        conditions.append(condition)
        values.extend(value if isinstance(value, tuple) else (value,))
    return conditions, values


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def step(  # noqa: PLR0913 - who, what, why, when
    connection: sqlite3.Connection,
    now: int,
    letter_ids: Sequence[str],
    end: ReviewStatus,
    *,
    actor: str,
    reason: str,
) -> list[str]:
    """Move the letters that may take this step; return their ids."""
    starts = [start.value for start, ends in REVIEW_STEPS.items() if end in ends]
    parameters = {
        "step": end.value,
        "now": now,
        "actor": actor,
        "reason": reason,
        "ids": to_json(list(letter_ids)),
        "starts": to_json(starts),
    }
    moved = {row[0] for row in connection.execute(_STEP, parameters).fetchall()}
    return [letter_id for letter_id in letter_ids if letter_id in moved]


def replay(  # noqa: PLR0913 - who, what, why, when
    connection: sqlite3.Connection,
    now: int,
    grace: int,
    tables: RecordTables,
    replays: Sequence[tuple[str, NewEntry | None]],
    *,
    actor: str,
    reason: str,
) -> list[str]:
    """``reviewed -> replayed`` with the next generation, or with the new entry, in the caller's transaction."""
    moved = []
    for letter_id, entry in replays:
        if _restart(connection, now, grace, tables, letter_id, entry):
            moved += step(connection, now, [letter_id], ReviewStatus.REPLAYED, actor=actor, reason=reason)
    return moved


def _restart(  # noqa: PLR0913, PLR0917 - one replay and the store's own parts
    connection: sqlite3.Connection,
    now: int,
    grace: int,
    tables: RecordTables,
    letter_id: str,
    entry: NewEntry | None,
) -> bool:
    """Start the job's next generation, or record the new entry; False where the letter may not be replayed."""
    status = one(connection, "SELECT review_status FROM dead_letters WHERE id = ?", (letter_id,))
    if status is None or ReviewStatus.REPLAYED not in REVIEW_STEPS[ReviewStatus(status)]:
        return False
    if entry is None:
        changed = connection.execute(_NEXT_GENERATION, {"letter": letter_id, "now": now, "grace": grace})
        return changed.rowcount == 1
    (answer,) = record(connection, now, grace, [entry], tables=tables)
    if answer.recorded_as is not RecordedAs.NEW:
        return False
    connection.execute("UPDATE dead_letters SET replayed_as = ? WHERE id = ?", (entry.key, letter_id))
    return True


def letters_to_publish(connection: sqlite3.Connection, workload: str, limit: int) -> list[DeadLetter]:
    """Pending letters that are not in the queue yet."""
    letters: list[DeadLetter] = []
    size = 0
    for row in connection.execute(_UNPUBLISHED, (workload, limit)):
        letters.append(_letter_of(row))
        size += len(letters[-1].body)
        if size >= MOST_BODY_BYTES:
            break
    return letters


def mark_published(connection: sqlite3.Connection, letter_ids: Sequence[str], queue: str) -> bool:
    """Mark the letters as published; False when the queue has been reset since."""
    if known_queue(connection) not in {None, queue}:
        return False
    connection.execute(_MARK_PUBLISHED, (to_json(list(letter_ids)),))
    return True


def letters_to_unpublish(connection: sqlite3.Connection, workload: str, limit: int) -> list[str]:
    """Replayed and closed letters that the queue may still hold."""
    return [row[0] for row in connection.execute(_OUTDATED, (workload, limit))]


def mark_unpublished(connection: sqlite3.Connection, letter_ids: Sequence[str]) -> None:
    """Mark the letters as removed from the queue."""
    connection.execute(_MARK_UNPUBLISHED, (to_json(list(letter_ids)),))
