"""Rows of the tables as objects of the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.contracts.dead_letters import DeadLetter, Decision, ReviewStatus
from holdfast.contracts.ledger import Attempt, AttemptOutcome, LedgerEntry, Status
from holdfast.contracts.times import from_ms
from holdfast.stores.cursors import not_a_cursor, position_of

ENTRY_COLUMNS: Final = (
    "id, workload, key, job_id, generation, status, body, labels, attempts, attempt_count, fence, priority, "
    "first_seen_at, updated_at, not_before, deadline, lease_until, expires_at, last_error_code, last_error_message, "
    "note, result, replay_of, warnings"
)
LETTER_COLUMNS: Final = (
    "seq, id, workload, key, job_id, generation, reason_code, reason_message, attempts, attempt_count, body, labels, "
    "review_status, decisions, created_at, updated_at, expires_at, replayed_as"
)


def to_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def entry_of(row: Sequence[Any]) -> LedgerEntry:
    """A ledger entry from ``ENTRY_COLUMNS``."""
    (_, workload, key, job_id, generation, status, body, labels, attempts, attempt_count, fence, priority, first_seen,
     updated, not_before, deadline, lease_until, expires, code, message, note, result, replay_of,
     warnings) = row  # fmt: skip
    return LedgerEntry(
        workload=workload,
        key=key,
        job_id=job_id,
        generation=generation,
        status=Status(status),
        body=body,
        labels=json.loads(labels),
        attempts=attempts_of(attempts),
        attempt_count=attempt_count,
        fence=fence,
        priority=priority,
        first_seen_at=from_ms(first_seen),
        updated_at=from_ms(updated),
        not_before=from_ms(not_before),
        deadline=maybe(deadline),
        lease_until=maybe(lease_until),
        expires_at=maybe(expires),
        last_error_code=code,
        last_error_message=message,
        note=note,
        result=json.loads(result) if result else None,
        replay_of=replay_of,
        warnings=tuple(json.loads(warnings)),
    )


def letter_of(row: Sequence[Any]) -> DeadLetter:
    """A dead letter from ``LETTER_COLUMNS``."""
    (_, letter_id, workload, key, job_id, generation, code, message, attempts, attempt_count, body, labels, review,
     decisions, created, updated, expires, replayed_as) = row  # fmt: skip
    return DeadLetter(
        id=letter_id,
        workload=workload,
        key=key,
        job_id=job_id,
        generation=generation,
        reason_code=code,
        reason_message=message,
        attempts=attempts_of(attempts),
        attempt_count=attempt_count,
        body=body,
        labels=json.loads(labels),
        review_status=ReviewStatus(review),
        decisions=tuple(
            Decision(ReviewStatus(each["step"]), each["actor"], each["reason"], from_ms(each["at"]))
            for each in json.loads(decisions)
        ),
        created_at=from_ms(created),
        updated_at=from_ms(updated),
        expires_at=from_ms(expires),
        replayed_as=replayed_as,
    )


def attempts_of(text: str) -> tuple[Attempt, ...]:
    """The attempt history from its JSON column."""
    return tuple(attempt_of(each) for each in json.loads(text))


def attempt_of(stored: Mapping[str, Any]) -> Attempt:
    """One attempt."""
    return Attempt(
        attempt=stored["attempt"],
        outcome=AttemptOutcome(stored["outcome"]),
        worker=stored["worker"],
        started_at=from_ms(stored["startedAt"]),
        finished_at=maybe(stored.get("finishedAt")),
        error_code=stored.get("errorCode"),
        error_message=stored.get("errorMessage"),
    )


def maybe(milliseconds: int | None) -> datetime | None:
    """The instant, or None."""
    return None if milliseconds is None else from_ms(milliseconds)


def row_after(cursor: str) -> int:
    """The row number that a cursor encodes."""
    position = position_of(cursor)
    if not position.isascii() or not position.isdigit() or len(position) > 18:  # noqa: PLR2004 - fits SQLite's integers
        raise not_a_cursor()
    return int(position)
