"""Entries and dead letters that another system wrote, in our shape.

A Node system that follows the same specification has the same collections and fields, but not our own fields: no
``fence``, no job id, no generation. Its ``_id`` is an ObjectId, and its instants may be ISO text. Such a document is
*foreign*. This module reads it as if it were ours, and :mod:`.importing` converts it for good. Another system's worker
may also write into an entry of ours, by its key: then dates become text, and ``attemptCount`` counts attempts that our
history does not have.

Another system's entry never has the job's body. As long as the job is not settled, only the queue has the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from bson.dbref import DBRef
from bson.objectid import ObjectId

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.entries import job_id_for
from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Workload

from .link import Document

ELSEWHERE: Final = "elsewhere"
"""In ``publishedTo``: the other system itself put the letter into the queue."""

_WORKER: Final = "another system"
_CODE: Final = "WORKED_ELSEWHERE"
_MESSAGE: Final = "Another system made this attempt; nothing more is known of it."
_LOST: Final = "LOST"
_OVERTAKEN: Final = "Another system's worker settled the job before this attempt did."
_NOTE: Final = "worked_elsewhere"
_UNKNOWN: Final = "UNKNOWN"
_MOST_ATTEMPTS: Final = 100
"""A bound, because another system may write any number into its counter."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATUSES: Final = frozenset(Status)
_OUTCOMES: Final = frozenset(AttemptOutcome)
_STEPS: Final = frozenset(ReviewStatus)
_INSTANTS: Final = ("firstSeenAt", "updatedAt", "notBefore", "deadline", "leaseUntil", "expiresAt")
_LETTER_ID = re.compile(r"dl_([0-9a-f]{24})")


def is_foreign(entry: Mapping[str, Any]) -> bool:
    """Whether another system made this entry."""
    return "fence" not in entry


def is_foreign_letter(letter: Mapping[str, Any]) -> bool:
    """Whether another system made this dead letter."""
    return "generation" not in letter


# --- entries --------------------------------------------------------------------------------------------------


def readable_entry(workload: Workload[Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry in our shape, whichever system wrote it."""
    if is_foreign(found):
        found = entry_in_our_shape(workload, found)
    elif not _is_intact(found):
        found = {**found, **repaired_fields(found)}
    if "body" not in found:
        known = {"idempotencyKey": found["idempotencyKey"], **found["labels"]}
        found = {**found, "body": json.dumps(known, ensure_ascii=False)}
    return found


def _is_intact(entry: Mapping[str, Any]) -> bool:
    return (
        type(entry["updatedAt"]) is datetime
        and type(entry.get("expiresAt")) is not str
        and entry["attemptCount"] == len(entry["attemptHistory"])
    )


def repaired_fields(entry: Mapping[str, Any]) -> Document:
    """The repaired fields of an entry of ours that another system has overwritten."""
    fields = {name: instant for name in _INSTANTS if (instant := instant_of(entry.get(name))) is not None}
    updated = fields.setdefault("updatedAt", entry["firstSeenAt"])
    status, count = _status(entry), _count(entry)
    attempts = [*entry["attemptHistory"]]
    if status.terminal:
        # A worker of ours may have held the job while the other system's worker settled it.
        attempts = _running_is_lost(attempts, updated, _LOST, _OVERTAKEN)
        fields.pop("leaseUntil", None)
    if count > len(attempts):
        attempts += _attempts(len(attempts) + 1, count, status, updated, entry)
    return fields | {"status": status.value, "attemptHistory": attempts, "attemptCount": len(attempts)}


def entry_in_our_shape(workload: Workload[Any], found: Mapping[str, Any]) -> Document:
    """A foreign entry in our shape. It has no body."""
    key, status = str(found.get("idempotencyKey")), _status(found)
    seen = instant_of(found.get("firstSeenAt")) or _created(found)
    updated = instant_of(found.get("updatedAt")) or seen
    attempts = _attempts(1, _count(found), status, updated, found)
    labels = columns(workload, found)
    entry: Document = {
        "_id": job_id_for(key),
        "idempotencyKey": key,
        **labels,
        "status": status.value,
        "generation": 1,
        "attemptCount": len(attempts),
        "attemptHistory": attempts,
        "lastErrorCode": _text(found, "lastErrorCode"),
        "lastErrorMessage": _text(found, "lastErrorMessage"),
        "firstSeenAt": seen,
        "updatedAt": updated,
        "notBefore": seen,
        "fence": 0,
        "priority": 0,
        "labels": labels,
    }
    if status.terminal:
        entry["expiresAt"] = instant_of(found.get("expiresAt")) or updated + workload.retention
        entry["note"] = _NOTE
    return entry


def attempts_before(entry: Mapping[str, Any]) -> list[Document]:
    """The attempts of an unsettled foreign entry that is taken over: the running attempt is lost."""
    return _running_is_lost(entry["attemptHistory"], entry["updatedAt"], _CODE, _MESSAGE)


def _running_is_lost(history: Sequence[Mapping[str, Any]], at: datetime, code: str, message: str) -> list[Document]:
    """The attempts, with the running attempt closed as lost (I5)."""
    attempts: list[Document] = [dict(each) for each in history]
    if attempts and attempts[-1]["outcome"] == AttemptOutcome.RUNNING.value:
        attempts[-1] |= {
            "outcome": AttemptOutcome.LOST.value,
            "finishedAt": at,
            "errorCode": code,
            "errorMessage": message,
        }
    return attempts


def _attempts(first: int, last: int, status: Status, at: datetime, found: Mapping[str, Any]) -> list[Document]:
    """Attempts of which only the number is known. The outcome of the last attempt follows from the status."""
    attempts: list[Document] = []
    for number in range(first, last + 1):
        attempt: Document = {"attempt": number, "worker": _WORKER, "startedAt": at}
        if number == last and status is Status.PROCESSING:
            attempt |= {"outcome": AttemptOutcome.RUNNING.value}
        elif number == last and status is Status.PROCESSED:
            attempt |= {"outcome": AttemptOutcome.SUCCEEDED.value, "finishedAt": at}
        else:
            code, message = (_text(found, "lastErrorCode"), _text(found, "lastErrorMessage"))
            has_error = number == last and code is not None
            attempt |= {
                "outcome": AttemptOutcome.FAILED.value,
                "finishedAt": at,
                "errorCode": code if has_error else _CODE,
                "errorMessage": message if has_error else _MESSAGE,
            }
        attempts.append(attempt)
    return attempts


# --- dead letters ---------------------------------------------------------------------------------------------


def letter_id_of(identity: ObjectId | str) -> str:
    """The id of a dead letter. A foreign letter has the same id before and after it is imported."""
    return identity if isinstance(identity, str) else f"dl_{identity}"


def foreign_ids(letter_ids: Sequence[str]) -> list[ObjectId]:
    """The ids that these letters have, or had, in the other system's collection."""
    return [ObjectId(match[1]) for each in letter_ids if (match := _LETTER_ID.fullmatch(each)) is not None]


def created_at(letter: Mapping[str, Any]) -> datetime:
    """When a foreign letter was written."""
    return instant_of(letter.get("createdAt")) or _created(letter)


def letter_in_our_shape(
    workload: Workload[Any],
    found: Mapping[str, Any],
    *,
    job_id: str | None = None,
    generation: int = 1,
    seen_at: datetime | None = None,
) -> Document:
    """A foreign dead letter in our shape, with the job's body as far as it can be reconstructed.

    ``seen_at`` is when the job was first seen, if that is known.
    """
    key, created = str(found.get("idempotencyKey")), created_at(found)
    attempts = _summarised_attempts(found, created)
    record: Document = {**plain(dict(found)), "id": letter_id_of(found["_id"]), "createdAt": isoformat(created)}
    body = workload.recover(record, min(created, seen_at or created))
    if body is None:
        body = json.dumps(record.get("payloadSnapshot"), ensure_ascii=False)
    content = json.loads(body)
    labels = workload.identify(content).labels if isinstance(content, dict) else {}
    return {
        "_id": record["id"],
        "idempotencyKey": key,
        **columns(workload, {**labels, **found}),
        "jobId": job_id or job_id_for(key),
        "generation": generation,
        "terminalReasonCode": _text(found, "terminalReasonCode") or _UNKNOWN,
        "terminalReasonMessage": _text(found, "terminalReasonMessage") or "",
        "attemptCount": len(attempts),
        "attemptHistory": attempts,
        "payloadSnapshot": found.get("payloadSnapshot"),
        "reviewStatus": step if (step := found.get("reviewStatus")) in _STEPS else ReviewStatus.PENDING.value,
        "decisions": [],
        "createdAt": created,
        "updatedAt": instant_of(found.get("updatedAt")) or created,
        "expiresAt": instant_of(found.get("expiresAt")) or created + workload.letter_retention,
        "labels": {**columns(workload, found), **labels},
        "body": body,
        "publishedTo": ELSEWHERE,
    }


def _summarised_attempts(letter: Mapping[str, Any], created: datetime) -> list[Document]:
    """The other system's summaries of its attempts, in order, and as many attempts as it counted."""
    history = letter.get("attemptHistory")
    summaries = [each for each in history if isinstance(each, Mapping)] if isinstance(history, list) else []
    attempts: list[Document] = []
    for number, each in enumerate(summaries[:_MOST_ATTEMPTS], start=1):
        outcome = each.get("outcome")
        attempts.append(
            {
                "attempt": number,
                "outcome": outcome if outcome in _OUTCOMES else AttemptOutcome.FAILED.value,
                "worker": _WORKER,
                "startedAt": instant_of(each.get("startedAt")) or created,
                "finishedAt": instant_of(each.get("finishedAt")) or created,
                "errorCode": _text(each, "errorCode") or _CODE,
                "errorMessage": _text(each, "errorMessage") or _MESSAGE,
            }
        )
    return attempts + _attempts(len(attempts) + 1, _count(letter), Status.DEAD_LETTERED, created, {})


def entry_of_letter(workload: Workload[Any], letter: Mapping[str, Any]) -> Document:
    """A new entry for a letter without an entry: the other system keeps letters longer than entries."""
    names = ("idempotencyKey", "generation", "attemptCount", "attemptHistory", "labels", "body", "expiresAt")
    created = letter["createdAt"]
    return {
        **{name: letter[name] for name in names},
        "_id": letter["jobId"],
        **columns(workload, letter["labels"]),
        "status": Status.DEAD_LETTERED.value,
        "lastErrorCode": letter["terminalReasonCode"],
        "lastErrorMessage": letter["terminalReasonMessage"],
        "firstSeenAt": created,
        "updatedAt": created,
        "notBefore": created,
        "fence": 0,
        "priority": 0,
        "note": _NOTE,
    }


# --- parts ----------------------------------------------------------------------------------------------------


def instant_of(value: Any) -> datetime | None:  # noqa: ANN401 - any value of a document
    """The instant in a field: Holdfast writes dates, and another system may have written ISO text.

    It is cut to the millisecond, because MongoDB's dates have milliseconds. None for a value that is neither a date nor
    ISO text. Text without a time zone counts as UTC.
    """
    if type(value) is datetime:
        return value
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found.replace(microsecond=found.microsecond // 1000 * 1000)


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a document
    """The value as JSON. A type that only MongoDB has becomes text; a DBRef becomes an object."""
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return {name: plain(child) for name, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    if isinstance(value, datetime):
        return isoformat(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def columns(workload: Workload[Any], found: Mapping[str, Any]) -> dict[str, str]:
    """The labels that are also fields of the document, for people."""
    return {name: found[name] for name in workload.label_columns if isinstance(found.get(name), str)}


def _status(found: Mapping[str, Any]) -> Status:
    """The status. An unknown status counts as not settled."""
    status = found.get("status")
    return Status(status) if status in _STATUSES else Status.RECEIVED


def _count(found: Mapping[str, Any]) -> int:
    count = found.get("attemptCount")
    return int(min(count, _MOST_ATTEMPTS)) if isinstance(count, int | float) and count > 0 else 0


def _text(found: Mapping[str, Any], name: str) -> str | None:
    """A text that another system wrote, with personal data and secrets masked."""
    value = found.get(name)
    return scrub(value) if isinstance(value, str) else None


def _created(found: Mapping[str, Any]) -> datetime:
    """When the document was created, from its ObjectId."""
    identity = found.get("_id")
    return identity.generation_time.astimezone(UTC) if isinstance(identity, ObjectId) else _BEGINNING
