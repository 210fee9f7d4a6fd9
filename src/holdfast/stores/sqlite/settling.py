"""Settling: transitions, effects and dead letters in one transaction (I3, I4, I8)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, assert_never

from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.times import duration_ms
from holdfast.contracts.transitions import (
    OVERDUE,
    Complete,
    Expire,
    MoveToDeadLetters,
    Proceed,
    Release,
    RetryLater,
    Settled,
    Settlement,
    noted_result,
)
from holdfast.sqlite.database import one, to_json
from holdfast.stores.fields import EXPIRED, LETTER_FROM_ENTRY, LETTER_FROM_TRANSITION
from holdfast.stores.folding import effects_of, note_of

from . import ledger
from .records import RecordTables

_MINE: Final = """
SELECT json_group_object(s.key, json_array(e.id, json(e.attempts), e.deadline))
FROM json_each(:leases) AS s
CROSS JOIN ledger_entries AS e ON e.workload = s.value ->> 0 AND e.job_id = s.value ->> 1
WHERE e.fence = s.value ->> 2 AND e.status = 'processing'
"""

_SETTLE: Final = """
UPDATE ledger_entries
SET status = s.status, attempts = s.attempts, attempt_count = json_array_length(s.attempts), lease_until = NULL,
    proceeded = 0, not_before = :now + coalesce(s.after, 0), due_at = :now + s.after + :grace,
    last_error_code = coalesce(s.code, last_error_code), last_error_message = coalesce(s.message, last_error_message),
    note = s.note, result = s.result, expires_at = :now + s.retention, updated_at = :now
FROM (SELECT value ->> 0 AS id, value ->> 1 AS status, value -> 2 AS attempts, value ->> 3 AS after,
             value ->> 4 AS code, value ->> 5 AS message, value ->> 6 AS note, value ->> 7 AS result,
             value ->> 8 AS retention
      FROM json_each(:rows)) AS s
WHERE ledger_entries.id = s.id AND ledger_entries.status = 'processing'
"""

_PROCEED: Final = "UPDATE ledger_entries SET proceeded = 1 WHERE id IN (SELECT value FROM json_each(:rows))"

_LAST_STEP: Final = """
UPDATE ledger_entries SET status = s.status, due_at = NULL
FROM (SELECT value ->> 0 AS id, value ->> 1 AS status FROM json_each(:rows)) AS s
WHERE ledger_entries.id = s.id AND ledger_entries.status = 'failed'
"""

# The row of a letter: its entry, its id, how long it is kept, and then the fields that the transition gives.
_given: Final = attrgetter(*LETTER_FROM_TRANSITION)
_GIVEN: Final = {name: f"l.value ->> {place}" for place, name in enumerate(LETTER_FROM_TRANSITION, start=3)}
_LETTER: Final = {
    **{name: f"e.{name}" for name in LETTER_FROM_ENTRY},
    **{name: f"coalesce({given}, e.{name})" if name in LETTER_FROM_ENTRY else given for name, given in _GIVEN.items()},
    "id": "l.value ->> 1",
    "created_at": ":now",
    "updated_at": ":now",
    "expires_at": ":now + (l.value ->> 2)",
}

# S608: the names are those of the contracts' fields; values are always parameters.
_LETTERS: Final = f"""
INSERT INTO dead_letters ({", ".join(_LETTER)}) SELECT {", ".join(_LETTER.values())}
FROM json_each(:rows) AS l CROSS JOIN ledger_entries AS e ON e.id = l.value ->> 0
"""  # noqa: S608


@dataclass(slots=True)
class _Batch:
    """The rows that one batch of transitions writes."""

    now: int
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    last_steps: list[tuple[int, str]] = field(default_factory=list)
    letters: list[tuple[Any, ...]] = field(default_factory=list)
    proceeding: list[int] = field(default_factory=list)

    def add(self, row_id: int, attempts: list[dict[str, Any]], settlement: Settlement, note: str | None) -> Status:
        """Add the rows of one transition; return the new state of the entry."""
        match settlement.transition:
            case Complete() as transition:
                self._close(attempts, AttemptOutcome.SUCCEEDED)
                noted = noted_result(transition.result, note)
                result = None if noted is None else to_json(noted)
                self._row(row_id, Status.PROCESSED, attempts, note=note, result=result, keep=transition.retention)
                return Status.PROCESSED
            case RetryLater() as transition:
                error = (transition.code, transition.message)
                self._close(attempts, AttemptOutcome.FAILED, *error, transition.traceback)
                self._row(row_id, Status.FAILED, attempts, after=transition.after, error=error, note=note)
                return Status.FAILED
            case Release() as transition:
                if attempts and attempts[-1]["outcome"] == AttemptOutcome.RUNNING:
                    attempts.pop()
                status = Status.FAILED if attempts else Status.RECEIVED
                self._row(row_id, status, attempts, after=transition.after, note=note)
                return status
            case Proceed() as transition:
                if not transition.repeatable:
                    self.proceeding.append(row_id)
                return Status.PROCESSING
            case MoveToDeadLetters() as transition:
                error = (transition.code, transition.message)
                self._close(attempts, AttemptOutcome.FAILED, *error, transition.traceback)
                # The entry stays as long as its letter, for a replay and against duplicates (I12).
                keep = max(transition.retention, transition.letter_retention)
                self._row(row_id, Status.FAILED, attempts, error=error, note=note, keep=keep)
                self.last_steps.append((row_id, Status.DEAD_LETTERED.value))
                letter = (row_id, transition.letter_id, duration_ms(transition.letter_retention))
                self.letters.append((*letter, *_given(transition)))
                return Status.DEAD_LETTERED
            case Expire() as transition:
                self._close(attempts, AttemptOutcome.FAILED, *EXPIRED)
                self._row(row_id, Status.FAILED, attempts, note=note, keep=transition.retention)
                self.last_steps.append((row_id, Status.EXPIRED.value))
                return Status.EXPIRED
            case _ as never:
                assert_never(never)

    def _close(
        self,
        attempts: list[dict[str, Any]],
        outcome: AttemptOutcome,
        code: str | None = None,
        message: str | None = None,
        traceback: str | None = None,
    ) -> None:
        if attempts and attempts[-1]["outcome"] == AttemptOutcome.RUNNING:
            attempts[-1] |= {"outcome": outcome.value, "finishedAt": self.now}
            if code is not None:
                attempts[-1] |= {"errorCode": code, "errorMessage": message}
            if traceback is not None:
                attempts[-1]["traceback"] = traceback

    def _row(  # noqa: PLR0913 - the columns that transitions differ in
        self,
        row_id: int,
        status: Status,
        attempts: list[dict[str, Any]],
        *,
        after: Any = None,  # noqa: ANN401 - a timedelta or None
        error: tuple[str | None, str | None] = (None, None),
        note: str | None = None,
        result: str | None = None,
        keep: Any = None,  # noqa: ANN401 - a timedelta or None
    ) -> None:
        wait = None if after is None else duration_ms(after)
        retention = None if keep is None else duration_ms(keep)
        self.rows.append((row_id, status.value, attempts, wait, *error, note, result, retention))


def settle(
    connection: sqlite3.Connection,
    now: int,
    grace: int,
    tables: RecordTables,
    settlements: Sequence[Settlement],
) -> list[Settled]:
    """Write the transitions whose leases still hold, with their effects and letters; see the port."""
    # The first transition of a lease counts. A second transition is stale, also in the same batch.
    first: dict[tuple[str, str, int], str] = {}
    for position, each in enumerate(settlements):
        first.setdefault((each.workload, each.lease.job_id, each.lease.fence), str(position))
    leases = {position: lease for lease, position in first.items()}
    mine = json.loads(one(connection, _MINE, {"leases": to_json(leases)}))
    late = {
        position
        for position, (_, _, deadline) in mine.items()
        if deadline is not None and deadline <= now and isinstance(settlements[int(position)].transition, Proceed)
    }
    held = {position: each for position, each in enumerate(settlements) if str(position) in mine.keys() - late}
    effects, enqueued = effects_of(held)
    if enqueued:
        ledger.follow(connection, now, enqueued)
    notes = dict(zip(effects, tables.apply(connection, now, list(effects.values())), strict=True)) if effects else {}
    batch = _Batch(now)
    answers = []
    for position, each in enumerate(settlements):
        found = mine.get(str(position))
        if found is None:
            answers.append(Settled(each.lease.job_id, None))
        elif str(position) in late:
            answers.append(Settled(each.lease.job_id, Status.PROCESSING, OVERDUE))
        else:
            note = note_of(each, notes.get(position))
            answers.append(Settled(each.lease.job_id, batch.add(found[0], found[1], each, note), note))
    if batch.proceeding:
        connection.execute(_PROCEED, {"rows": to_json(batch.proceeding)})
    if batch.rows:
        connection.execute(_SETTLE, {"rows": to_json(batch.rows), "now": now, "grace": grace})
    if batch.letters:
        connection.execute(_LETTERS, {"rows": to_json(batch.letters), "now": now})
    if batch.last_steps:
        connection.execute(_LAST_STEP, {"rows": to_json(batch.last_steps)})
    return answers
