"""Recording, claiming, renewing and sweeping: statements on ``ledger_entries``.

Each function runs inside a write transaction that the caller opened (``BEGIN IMMEDIATE``). So the rows that a function
reads cannot change before it writes them. A batch is one JSON parameter (see :func:`holdfast.sqlite.database.one`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.ledger import (
    AlreadySettled,
    AttemptOutcome,
    Claimed,
    ClaimResult,
    DueEntry,
    Exhausted,
    Interrupted,
    Lease,
    NewEntry,
    NotNow,
    Overdue,
    Pruned,
    Recorded,
    RecordedAs,
    Status,
    Unrecorded,
)
from holdfast.contracts.times import duration_ms, from_ms, isoformat
from holdfast.sqlite.database import one, rows_to_json, to_json
from holdfast.stores.fields import LOST
from holdfast.stores.folding import writes_of

from .records import RecordTables

_TERMINAL: Final = frozenset(status.value for status in Status if status.terminal)

# --- record ---------------------------------------------------------------------------------------------------

_NEWEST_ROW: Final = "SELECT coalesce(max(id), 0) FROM ledger_entries"

_RECORD: Final = """
INSERT INTO ledger_entries (workload, job_id, key, status, body, fingerprint, labels, priority, not_before, due_at,
                            life, deadline, replay_of, lane, mortal, warnings, first_seen_at, updated_at)
SELECT value ->> 0, value ->> 1, value ->> 2, 'received', value ->> 3, value ->> 4, value -> 5, value ->> 6,
       :now + (value ->> 7), :now + (value ->> 7) + :grace, value ->> 8, :now + (value ->> 8), value ->> 9,
       value ->> 10, value ->> 11, value -> 12, :now, :now
FROM json_each(:entries) WHERE true
ON CONFLICT DO NOTHING
"""

_EXISTING: Final = """
SELECT json_group_array(json_array(e.workload, e.key, e.id, e.fingerprint, e.job_id, json(e.labels), e.first_seen_at,
                                   e.status))
FROM json_each(:keys) AS k
CROSS JOIN ledger_entries AS e ON e.workload = k.value ->> 0 AND e.key = k.value ->> 1
"""


def record(  # noqa: PLR0913 - the store's own parts
    connection: sqlite3.Connection,
    now: int,
    grace: int,
    entries: Sequence[NewEntry],
    *,
    tables: RecordTables | None = None,
    queued: bool = False,
) -> list[Recorded]:
    """Insert; the unique indexes decide which entries are new.

    The effects of new entries are applied to ``tables``, where these are given. ``queued``: the caller publishes the
    new entries.
    """
    rows = [
        (
            entry.workload,
            entry.job_id,
            entry.key,
            entry.body,
            entry.fingerprint,
            entry.labels,
            entry.priority,
            duration_ms(entry.delay),
            None if entry.ttl is None else duration_ms(entry.ttl),
            entry.replay_of,
            entry.fairness_key,
            entry.ttl_includes_replays,
            entry.warnings,
        )
        for entry in entries
    ]
    inserted = connection.execute(_RECORD, {"entries": rows_to_json(rows), "now": now, "grace": grace}).rowcount
    if inserted == len(entries):
        first_seen = from_ms(now)
        recorded = [
            Recorded(RecordedAs.NEW, entry.job_id, entry.labels, first_seen, Status.RECEIVED, queued)
            for entry in entries
        ]
    else:
        recorded = _compare(connection, now, entries, inserted, queued=queued)
    if tables is not None and any(entry.effects for entry in entries):
        effects = [
            (each.job_id, writes_of(each.job_id, each.effects))
            for each, answer in zip(entries, recorded, strict=True)
            if answer.recorded_as is RecordedAs.NEW
        ]
        tables.apply(connection, now, effects)
    return recorded


def follow(connection: sqlite3.Connection, now: int, entries: Sequence[NewEntry]) -> None:
    """Record jobs that other jobs enqueued. They are due at once: the next round of maintenance publishes them."""
    record(connection, now, 0, entries)


def _compare(
    connection: sqlite3.Connection,
    now: int,
    entries: Sequence[NewEntry],
    inserted: int,
    *,
    queued: bool,
) -> list[Recorded]:
    """Answers for a batch that was not all new. The newest rows are the rows that this batch inserted."""
    newest_before = one(connection, _NEWEST_ROW) - inserted
    found = one(connection, _EXISTING, {"keys": to_json([(entry.workload, entry.key) for entry in entries])})
    existing = {(row[0], row[1]): row for row in json.loads(found)}
    answers, ours = [], set()
    for entry in entries:
        identity = (entry.workload, entry.key)
        row = existing.get(identity)
        if row is None:  # another key has this job id
            answers.append(Recorded(RecordedAs.CONFLICT, entry.job_id, {}, from_ms(now), Status.RECEIVED))
            continue
        _, _, row_id, fingerprint, job_id, labels, first_seen, status = row
        if row_id > newest_before and identity not in ours:
            ours.add(identity)
            recorded_as = RecordedAs.NEW
        else:
            same = fingerprint == entry.fingerprint
            recorded_as = RecordedAs.DUPLICATE if same else RecordedAs.CONFLICT
        made = recorded_as is RecordedAs.NEW
        answers.append(Recorded(recorded_as, job_id, labels, from_ms(first_seen), Status(status), queued and made))
    return answers


# --- claim ----------------------------------------------------------------------------------------------------

_CANDIDATES: Final = """
SELECT json_group_array(json_array(e.job_id, e.id, e.key, e.generation, e.status, e.fence, json(e.attempts), e.body,
                                   json(e.labels), e.first_seen_at, e.lease_until, e.not_before, e.deadline,
                                   e.proceeded, e.withdrawn, json(e.result)))
FROM json_each(:job_ids) AS j
CROSS JOIN ledger_entries AS e ON e.workload = :workload AND e.job_id = j.value
"""

_CLAIM: Final = """
UPDATE ledger_entries
SET status = 'processing', fence = fence + 1, attempts = c.attempts, attempt_count = json_array_length(c.attempts),
    lease_until = :until, due_at = :until, updated_at = :now
FROM (SELECT value ->> 0 AS id, value -> 1 AS attempts FROM json_each(:claims)) AS c
WHERE ledger_entries.id = c.id
"""


def claim(  # noqa: PLR0913 - the port's own arguments
    connection: sqlite3.Connection,
    now: int,
    workload: str,
    job_ids: Sequence[str],
    *,
    worker: str,
    lease: timedelta,
    max_attempts: int,
) -> list[ClaimResult]:
    """Decide for each job, then claim the free jobs with one update."""
    found = one(connection, _CANDIDATES, {"job_ids": to_json(list(job_ids)), "workload": workload})
    candidates = {row[0]: row for row in json.loads(found)}
    taken: list[tuple[int, list[dict[str, Any]]]] = []
    results: list[ClaimResult] = []
    for position, job_id in enumerate(job_ids):
        if job_id in job_ids[:position]:  # delivered twice in one batch: the first delivery counts
            results.append(NotNow(job_id, lease))
        else:
            results.append(_decide(candidates.get(job_id), job_id, now, worker, max_attempts, taken))
    if taken:
        connection.execute(_CLAIM, {"claims": to_json(taken), "until": now + duration_ms(lease), "now": now})
    return results


def _decide(  # noqa: PLR0911, PLR0913, PLR0917 - one candidate, the facts that decide, and an answer for each case
    row: list[Any] | None,
    job_id: str,
    now: int,
    worker: str,
    max_attempts: int,
    taken: list[tuple[int, list[dict[str, Any]]]],
) -> ClaimResult:
    if row is None:
        return Unrecorded(job_id)
    (_, row_id, key, generation, status, fence, attempts, body, labels, first_seen, lease_until, not_before,
     deadline, proceeded, cancelled, result) = row  # fmt: skip
    if status in _TERMINAL:
        return AlreadySettled(job_id, Status(status), result)
    held, overdue = status == Status.PROCESSING, deadline is not None and deadline <= now
    wait = (lease_until if held else not_before) - now
    if wait > 0 and (held or not overdue):  # an overdue job need not wait any longer
        return NotNow(job_id, timedelta(milliseconds=wait))
    if attempts and attempts[-1]["outcome"] == AttemptOutcome.RUNNING:  # its worker vanished (I5)
        attempts[-1] |= {**LOST, "finishedAt": now}
    taken.append((row_id, attempts))
    if proceeded:  # what the job did cannot be undone, so this comes before all other cases (I11)
        return Interrupted(job_id, key, generation, fence + 1, len(attempts), body)
    if overdue:
        return Overdue(job_id, key, generation, fence + 1, body, bool(cancelled))
    if len(attempts) >= max_attempts:
        return Exhausted(job_id, key, generation, fence + 1, len(attempts), body)
    attempts.append({"attempt": len(attempts) + 1, "outcome": "running", "worker": worker, "startedAt": now})
    return Claimed(
        job_id,
        key,
        generation,
        fence + 1,
        len(attempts),
        body,
        labels,
        from_ms(first_seen),
        None if deadline is None else from_ms(deadline),
    )


_RENEW: Final = """
UPDATE ledger_entries SET lease_until = :until, due_at = :until WHERE id IN (SELECT value FROM json_each(:ids))
"""

_NOTE_PROGRESS: Final = """
UPDATE ledger_entries SET progress = p.progress
FROM (SELECT value ->> 0 AS job_id, value ->> 1 AS fence, value -> 2 AS progress FROM json_each(:rows)) AS p
WHERE workload = :workload AND ledger_entries.job_id = p.job_id AND ledger_entries.fence = p.fence
  AND status = 'processing'
"""

_HELD: Final = """
SELECT json_group_object(l.key, e.id) FROM json_each(:leases) AS l
CROSS JOIN ledger_entries AS e ON e.workload = :workload AND e.job_id = l.value ->> 0
WHERE e.fence = l.value ->> 1 AND e.status = 'processing'
"""


def renew(
    connection: sqlite3.Connection,
    now: int,
    workload: str,
    leases: Sequence[Lease],
    lease: timedelta,
) -> list[Lease]:
    """Extend the leases that still hold; return the leases that were lost."""
    pairs = to_json([(each.job_id, each.fence) for each in leases])
    held = json.loads(one(connection, _HELD, {"leases": pairs, "workload": workload}))
    until = now + duration_ms(lease)
    connection.execute(_RENEW, {"ids": to_json(list(held.values())), "until": until})
    return [each for position, each in enumerate(leases) if str(position) not in held]


def note_progress(
    connection: sqlite3.Connection, now: int, workload: str, progress: Sequence[tuple[Lease, Mapping[str, Any]]]
) -> None:
    """Write how far jobs are whose leases still hold. The last report of a lease counts."""
    at = isoformat(from_ms(now))
    rows = [(lease.job_id, lease.fence, {**told, "at": at}) for lease, told in dict(progress).items()]
    connection.execute(_NOTE_PROGRESS, {"workload": workload, "rows": to_json(rows)})


# --- sweep ----------------------------------------------------------------------------------------------------

_DUE: Final = """
SELECT id, job_id, body, priority, attempt_count, not_before, generation, updated_at FROM ledger_entries
WHERE workload = :workload AND due_at <= :now ORDER BY due_at LIMIT :limit
"""

_UNSETTLED: Final = """
SELECT id, job_id, body, priority, attempt_count, not_before, generation, updated_at FROM ledger_entries
WHERE workload = :workload AND job_id IN (SELECT value FROM json_each(:ids))
  AND status IN ('received', 'processing', 'failed')
"""

_ANY_DUE: Final = "SELECT EXISTS (SELECT 1 FROM ledger_entries WHERE workload = :workload AND due_at <= :now)"

_POSTPONE: Final = """
UPDATE ledger_entries SET due_at = :again WHERE id IN (SELECT value FROM json_each(:ids))
"""

_OVERDUE: Final = """
SELECT job_id FROM ledger_entries
WHERE workload = :workload AND deadline <= :now AND status IN ('received', 'failed') ORDER BY deadline LIMIT :limit
"""


def any_due(connection: sqlite3.Connection, now: int, workload: str) -> bool:
    """Whether any entry is due."""
    return bool(one(connection, _ANY_DUE, {"workload": workload, "now": now}))


def due(connection: sqlite3.Connection, now: int, workload: str, limit: int, again_after: timedelta) -> list[DueEntry]:
    """Entries to republish. Each is postponed, so that no other sweeper reports it too."""
    rows = connection.execute(_DUE, {"workload": workload, "now": now, "limit": limit}).fetchall()
    if rows:
        ids = to_json([row[0] for row in rows])
        connection.execute(_POSTPONE, {"again": now + duration_ms(again_after), "ids": ids})
    return [_due_entry(row, now) for row in rows]


def unsettled(connection: sqlite3.Connection, now: int, workload: str, job_ids: Sequence[str]) -> list[DueEntry]:
    """The jobs among these that are not settled."""
    rows = connection.execute(_UNSETTLED, {"workload": workload, "ids": to_json(list(job_ids))})
    return [_due_entry(row, now) for row in rows]


def _due_entry(row: Sequence[Any], now: int) -> DueEntry:
    _, job_id, body, priority, attempts, not_before, generation, updated = row
    after = timedelta(milliseconds=max(0, not_before - now))
    return DueEntry(job_id, body, priority, attempts, after, generation, from_ms(updated))


def overdue(connection: sqlite3.Connection, now: int, workload: str, limit: int) -> list[str]:
    """Jobs that wait past their deadline."""
    rows = connection.execute(_OVERDUE, {"workload": workload, "now": now, "limit": limit})
    return [row[0] for row in rows]


# --- the queue's epoch, and the end of retention ---------------------------------------------------------------

_KNOWN_QUEUE: Final = "SELECT value FROM store_facts WHERE name = 'queue'"

_REMEMBER_QUEUE: Final = "INSERT INTO store_facts VALUES ('queue', ?) ON CONFLICT DO UPDATE SET value = excluded.value"

_QUEUE_LOST: Final = (
    # Every entry that waits has a due_at: the partial index holds them, and no settled entry is read.
    "UPDATE ledger_entries SET due_at = :now WHERE due_at IS NOT NULL AND status IN ('received', 'failed')",
    "UPDATE dead_letters SET published = 0 WHERE review_status = 'pending'",
    # A queue that was restored from an older copy may hold letters that were removed from the lost queue.
    "UPDATE dead_letters SET published = 1 WHERE review_status IN ('replayed', 'closed')",
)

# An entry stays as long as a letter of its key. Otherwise the key could be recorded as new, and the new job's dead
# letter would have the id of the old letter (I12).
_PRUNE_ENTRIES: Final = """
DELETE FROM ledger_entries WHERE id IN (
    SELECT id FROM ledger_entries AS e WHERE expires_at <= :now
      AND NOT EXISTS (SELECT 1 FROM dead_letters AS l WHERE l.workload = e.workload AND l.key = e.key)
    ORDER BY expires_at LIMIT :limit)
"""

_PRUNE_LETTERS: Final = """
DELETE FROM dead_letters WHERE seq IN
    (SELECT seq FROM dead_letters WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
RETURNING workload, id
"""


def known_queue(connection: sqlite3.Connection) -> str | None:
    """The epoch of the queue that was seen last."""
    known: str | None = one(connection, _KNOWN_QUEUE)
    return known


def detect_queue_reset(connection: sqlite3.Connection, now: int, epoch: str) -> bool:
    """Compare the epoch and store it; when the queue is new, make all waiting entries and letters due again."""
    known = known_queue(connection)
    if known == epoch:
        return False
    connection.execute(_REMEMBER_QUEUE, (epoch,))
    if known is None:
        return False
    for statement in _QUEUE_LOST:
        connection.execute(statement, {"now": now} if ":now" in statement else {})
    return True


def prune(connection: sqlite3.Connection, now: int, tables: RecordTables, limit: int) -> Pruned:
    """Delete rows whose retention is over. Only terminal entries have an ``expires_at``."""
    parameters = {"now": now, "limit": limit}
    letters: dict[str, list[str]] = {}
    for workload, letter_id in connection.execute(_PRUNE_LETTERS, parameters).fetchall():
        letters.setdefault(workload, []).append(letter_id)
    entries = connection.execute(_PRUNE_ENTRIES, parameters).rowcount
    return Pruned(entries, letters, tables.prune(connection, now, limit))
