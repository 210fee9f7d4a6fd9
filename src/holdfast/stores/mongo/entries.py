"""Entries and dead letters: from MongoDB's documents to the engine's objects, and back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import bson
from bson.errors import BSONError

from holdfast.contracts.dead_letters import DeadLetter, Decision, ReviewStatus
from holdfast.contracts.ledger import (
    Attempt,
    AttemptOutcome,
    LedgerEntry,
    NewEntry,
    Recorded,
    RecordedAs,
    Status,
)
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import duration_ms
from holdfast.contracts.transitions import MoveToDeadLetters
from holdfast.contracts.workload import Workload

from .foreign import is_foreign_letter, letter_in_our_shape, readable_entry
from .link import Document

_MOST_OF_AN_UNREADABLE_BODY: Final = 2_000
_LARGEST_SNAPSHOT: Final = 4_000_000
MAX_DEPTH: Final = 100
"""Levels of nested objects and lists that MongoDB supports."""


def new_mark() -> str:
    """An id for one call. By this mark the call finds its own writes when a reply was lost."""
    return secrets.token_hex(8)


def new_document(
    workload: Workload[Any],
    entry: NewEntry,
    now: datetime,
    grace: timedelta,
    mark: str,
) -> Document:
    """A new entry, ``received``."""
    not_before = now + timedelta(milliseconds=duration_ms(entry.delay))
    document: Document = {
        "_id": entry.job_id,
        "idempotencyKey": entry.key,
        **columns(workload, entry.labels),
        "status": Status.RECEIVED.value,
        "generation": 1,
        "attemptCount": 0,
        "attemptHistory": [],
        "lastErrorCode": None,
        "lastErrorMessage": None,
        "firstSeenAt": now,
        "updatedAt": now,
        "notBefore": not_before,
        "dueAt": not_before + grace,
        "fence": 0,
        "priority": entry.priority,
        "labels": dict(entry.labels),
        "fingerprint": entry.fingerprint,
        "body": entry.body,
        "recordId": mark,
    }
    if entry.ttl is not None:
        ttl = duration_ms(entry.ttl)
        document |= {"life": ttl, "deadline": now + timedelta(milliseconds=ttl)}
    if entry.ttl_includes_replays:
        document["mortal"] = True
    if entry.fairness_key is not None:
        document |= {"lane": entry.fairness_key, "openLane": entry.fairness_key}
    if entry.replay_of is not None:
        document["replayOf"] = entry.replay_of
    if entry.warnings:
        document["warnings"] = list(entry.warnings)
    return document


EXISTING: Final = dict.fromkeys(
    ("idempotencyKey", "fingerprint", "labels", "firstSeenAt", "status", "recordId", "fence"), 1
)
"""The fields of an existing entry that recording needs."""


def compared(entry: NewEntry, found: Mapping[str, Any], recorded_as: RecordedAs | None = None) -> Recorded:
    """The answer for an entry whose key is in the ledger."""
    if recorded_as is None:
        # The entry of another system has no fingerprint: then the key alone decides.
        same = found.get("fingerprint", entry.fingerprint) == entry.fingerprint
        recorded_as = RecordedAs.DUPLICATE if same else RecordedAs.CONFLICT
    return Recorded(recorded_as, found["_id"], found["labels"], found["firstSeenAt"], Status(found["status"]))


def id_taken(entry: NewEntry, now: datetime) -> Recorded:
    """The answer for an entry whose job id belongs to another key."""
    return Recorded(RecordedAs.CONFLICT, entry.job_id, {}, now, Status.RECEIVED)


def columns(workload: Workload[Any], labels: Mapping[str, str]) -> Document:
    """The labels that are also fields of the document, for people."""
    return {name: labels[name] for name in workload.label_columns if name in labels}


def entry_of(workload: Workload[Any], document: Mapping[str, Any]) -> LedgerEntry:
    """A ledger entry."""
    document = readable_entry(workload, document)
    result = document.get("result")
    return LedgerEntry(
        workload=workload.name,
        key=document["idempotencyKey"],
        job_id=document["_id"],
        generation=document["generation"],
        status=Status(document["status"]),
        body=document["body"],
        labels=document["labels"],
        attempts=_attempts_of(document["attemptHistory"]),
        attempt_count=document["attemptCount"],
        fence=document["fence"],
        priority=document["priority"],
        first_seen_at=document["firstSeenAt"],
        updated_at=document["updatedAt"],
        not_before=document["notBefore"],
        deadline=document.get("deadline"),
        lease_until=document.get("leaseUntil"),
        expires_at=document.get("expiresAt"),
        last_error_code=document.get("lastErrorCode"),
        last_error_message=document.get("lastErrorMessage"),
        note=document.get("note"),
        result=json.loads(result) if result else None,
        replay_of=document.get("replayOf"),
        warnings=tuple(document.get("warnings", ())),
    )


def new_letter(
    workload: Workload[Any], entry: Mapping[str, Any], transition: MoveToDeadLetters, now: datetime
) -> Document:
    """The dead letter of an entry whose attempts are closed."""
    body = entry["body"] if transition.body is None else transition.body
    return {
        "_id": transition.letter_id,
        "idempotencyKey": entry["idempotencyKey"],
        **columns(workload, entry["labels"]),
        "jobId": entry["_id"],
        "generation": entry["generation"],
        "terminalReasonCode": transition.reason_code,
        "terminalReasonMessage": transition.reason_message,
        "attemptCount": entry["attemptCount"],
        "attemptHistory": entry["attemptHistory"],
        "payloadSnapshot": snapshot(body),
        "reviewStatus": ReviewStatus.PENDING.value,
        "decisions": [],
        "createdAt": now,
        "updatedAt": now,
        "expiresAt": now + timedelta(milliseconds=duration_ms(transition.letter_retention)),
        "labels": entry["labels"],
        "body": body,
        "publishedTo": None,
    }


def snapshot(body: str) -> Document:
    """A job's body for people, as an object; a part of its text when MongoDB cannot store the object."""
    if len(body) <= _LARGEST_SNAPSHOT:
        try:
            found = json.loads(body)
            if isinstance(found, dict) and not too_deep(body, found):
                bson.encode(found)
                return found
        except (ValueError, RecursionError, OverflowError, BSONError):
            pass
    return {"unreadable": scrub(body[:_MOST_OF_AN_UNREADABLE_BODY])}


def too_deep(text: str, content: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether the content of this JSON text is nested deeper than MongoDB accepts."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:  # the depth is at most the number of brackets
        return False
    depth, layer = 0, [content]
    while layer and depth <= MAX_DEPTH:
        depth += 1
        children = (child for each in layer for child in (each.values() if isinstance(each, dict) else each))
        layer = [child for child in children if isinstance(child, dict | list | tuple)]
    return depth > MAX_DEPTH


WITHOUT_SNAPSHOT: Final = {"payloadSnapshot": 0}
"""Letters of ours are read without the snapshot: the body has the same content, exactly."""


def letter_of(workload: Workload[Any], document: Mapping[str, Any]) -> DeadLetter:
    """A dead letter."""
    if is_foreign_letter(document):
        document = letter_in_our_shape(workload, document)
    return DeadLetter(
        id=document["_id"],
        workload=workload.name,
        key=document["idempotencyKey"],
        job_id=document["jobId"],
        generation=document["generation"],
        reason_code=document["terminalReasonCode"],
        reason_message=document["terminalReasonMessage"],
        attempts=_attempts_of(document["attemptHistory"]),
        attempt_count=document["attemptCount"],
        body=document["body"],
        labels=document["labels"],
        review_status=ReviewStatus(document["reviewStatus"]),
        decisions=tuple(
            Decision(ReviewStatus(each["step"]), each["actor"], each["reason"], each["at"])
            for each in document["decisions"]
        ),
        created_at=document["createdAt"],
        updated_at=document["updatedAt"],
        expires_at=document["expiresAt"],
        replayed_as=document.get("replayedAs"),
    )


def _attempts_of(stored: Sequence[Mapping[str, Any]]) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            attempt=each["attempt"],
            outcome=AttemptOutcome(each["outcome"]),
            worker=each["worker"],
            started_at=each["startedAt"],
            finished_at=each.get("finishedAt"),
            error_code=each.get("errorCode"),
            error_message=each.get("errorMessage"),
        )
        for each in stored
    )
