"""Documents: entries and dead letters as MongoDB has them, and their positions in a listing.

A position in a listing by time is the instant and the id of the last item that was read. The server sorts text before
dates, and text before ObjectIds. Our own documents have dates and text ids. Those of another system have ObjectIds, and
their instants may be text (:mod:`.foreign`). A listing has both kinds, and each kind is sorted by itself.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import bson
from bson.errors import BSONError, InvalidId
from bson.objectid import ObjectId

from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.ledger import LedgerEntry, NewEntry, Status
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import duration_ms, first_ms, from_ms, isoformat, to_ms
from holdfast.contracts.transitions import MoveToDeadLetters
from holdfast.contracts.workload import Workload
from holdfast.stores.fields import (
    LETTER_FROM_ENTRY,
    LETTER_FROM_TRANSITION,
    names_of,
    not_a_cursor,
    position_of,
    public_name,
    reader,
    to_cursor,
)

from .foreign import columns, is_foreign_letter, letter_in_our_shape, readable_entry
from .link import Document

_MOST_OF_AN_UNREADABLE_BODY: Final = 2_000
_LARGEST_SNAPSHOT: Final = 4_000_000
MAX_DEPTH: Final = 100
"""Levels of nested objects and lists that MongoDB supports."""


# --- entries --------------------------------------------------------------------------------------------------


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


_read_entry: Final[Callable[..., LedgerEntry]] = reader(
    LedgerEntry, stored_as=lambda name: "_id" if name == "job_id" else public_name(name), result=json.loads
)


def entry_of(workload: Workload[Any], document: Mapping[str, Any]) -> LedgerEntry:
    """A ledger entry."""
    return _read_entry(readable_entry(workload, document), workload=workload.name)


# --- dead letters ---------------------------------------------------------------------------------------------

_FROM_ENTRY: Final = tuple(public_name(name) for name in LETTER_FROM_ENTRY if name not in {"workload", "job_id"})
_FROM_TRANSITION: Final = tuple((public_name(name), name) for name in LETTER_FROM_TRANSITION)


def new_letter(
    workload: Workload[Any], entry: Mapping[str, Any], transition: MoveToDeadLetters, now: datetime
) -> Document:
    """The dead letter of an entry whose attempts are closed."""
    given = {name: getattr(transition, field) for name, field in _FROM_TRANSITION}
    letter: Document = {
        "_id": transition.letter_id,
        **columns(workload, entry["labels"]),
        "jobId": entry["_id"],
        **{name: entry[name] for name in _FROM_ENTRY},
        **{name: value for name, value in given.items() if value is not None},
        "reviewStatus": ReviewStatus.PENDING.value,
        "decisions": [],
        "createdAt": now,
        "updatedAt": now,
        "expiresAt": now + timedelta(milliseconds=duration_ms(transition.letter_retention)),
        "publishedTo": None,
    }
    return letter | {"payloadSnapshot": snapshot(letter["body"])}


WITHOUT_SNAPSHOT: Final = {"payloadSnapshot": 0}
"""Letters of ours are read without the snapshot: the body has the same content, exactly."""


def _letter_field(name: str) -> str:
    return "_id" if name == "id" else public_name(name)


LISTED_FIELDS: Final = {_letter_field(name): 1 for name in names_of(ListedLetter)}
"""What is read of a letter for a list."""

_read_letter: Final[Callable[..., DeadLetter]] = reader(DeadLetter, stored_as=_letter_field)
_read_listed: Final[Callable[..., ListedLetter]] = reader(ListedLetter, stored_as=_letter_field)


def letter_of(workload: Workload[Any], document: Mapping[str, Any]) -> DeadLetter:
    """A dead letter."""
    if is_foreign_letter(document):
        document = letter_in_our_shape(workload, document)
    return _read_letter(document, workload=workload.name)


def listed_letter_of(workload: Workload[Any], document: Mapping[str, Any]) -> ListedLetter:
    """A dead letter for a list. A foreign document must be whole: its labels may be only in its snapshot."""
    if is_foreign_letter(document):
        document = letter_in_our_shape(workload, document)
    return _read_listed(document, workload=workload.name)


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


# --- positions in a listing -----------------------------------------------------------------------------------

_LONGEST_NUMBER: Final = 15
# No id and no number begins with these.
_TEXT: Final = "\x01"
_OBJECT_ID: Final = "\x02"

Position = tuple[datetime | str, str | ObjectId]


def cursor_of(document: Mapping[str, Any], field: str) -> str:
    """The cursor of a document in a listing by this field."""
    return cursor_at(_instant(document, field), document["_id"])


def cursor_at(instant: datetime | str, identity: str | ObjectId) -> str:
    """The cursor of an item with this instant and this id."""
    shown = identity if isinstance(identity, str) else f"{_OBJECT_ID}{identity}"
    if isinstance(instant, str):
        return to_cursor(f"{_TEXT}{instant}{_TEXT}{shown}")
    return to_cursor(f"{to_ms(instant)}:{shown}")


def parse_cursor(cursor: str) -> Position:
    """The instant and the id that a cursor encodes."""
    position = position_of(cursor)
    if position.startswith(_TEXT):
        text, separator, shown = position.removeprefix(_TEXT).partition(_TEXT)
        if not separator:
            raise not_a_cursor()
        return text, _identity(shown)
    number, separator, shown = position.partition(":")
    digits = number.removeprefix("-")  # an instant may be before 1970
    if not separator or not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise not_a_cursor()
    try:
        return from_ms(int(number)), _identity(shown)
    except (ValueError, OverflowError, OSError) as error:
        raise not_a_cursor() from error


def _identity(shown: str) -> str | ObjectId:
    if not shown.startswith(_OBJECT_ID):
        return shown
    try:
        return ObjectId(shown.removeprefix(_OBJECT_ID))
    except InvalidId as error:
        raise not_a_cursor() from error


def after(cursor: str, field: str) -> dict[str, Any]:
    """The condition for items after a position, oldest first."""
    at, identity = parse_cursor(cursor)
    conditions: list[dict[str, Any]] = [{field: {"$gt": at}}, {field: at, "_id": {"$gt": identity}}]
    if isinstance(identity, str):
        conditions.append({field: at, "_id": {"$type": "objectId"}})
    if isinstance(at, str):
        conditions.append({field: {"$type": "date"}})
    return {"$or": conditions}


def newest(field: str, since: datetime | None, until: datetime | None, cursor: str | None) -> dict[str, Any]:
    """The condition for items of a span of time, after a position, newest first. Dates come before text.

    Each alternative is a single range of the index. With two conditions that both have alternatives, the server would
    read the index from its beginning.
    """
    if since is None and until is None and not cursor:
        return {}
    at, identity = parse_cursor(cursor) if cursor else (None, None)
    conditions: list[dict[str, Any]] = []
    if not isinstance(at, str):
        first, end = (None if each is None else from_ms(first_ms(each)) for each in (since, until))
        conditions += _from_position(field, first, end, at, identity) or [{field: {"$type": "date"}}]
    first_text, end_text = (None if each is None else isoformat(from_ms(first_ms(each))) for each in (since, until))
    text = at if isinstance(at, str) else None
    conditions += _from_position(field, first_text, end_text, text, identity) or [{field: {"$type": "string"}}]
    return {"$or": conditions}


Instant = TypeVar("Instant", datetime, str)


def _from_position(
    field: str, first: Instant | None, end: Instant | None, at: Instant | None, identity: str | ObjectId | None
) -> list[dict[str, Any]]:
    """The conditions for items from ``first`` to ``end`` and after a position; empty if there is none of the three."""
    span: dict[str, Any] = {} if first is None else {"$gte": first}
    if end is not None or at is not None:
        span["$lt"] = min(each for each in (end, at) if each is not None)
    conditions: list[dict[str, Any]] = [{field: span}] if span else []
    if at is not None and (first is None or at >= first) and (end is None or at < end):
        conditions.append({field: at, "_id": {"$lt": identity}})
        if isinstance(identity, ObjectId):
            conditions.append({field: at, "_id": {"$type": "string"}})
    return conditions


def order_of(document: Mapping[str, Any], field: str) -> tuple[bool, Any, bool, Any]:
    """A sort key with the server's order, for merging the listings of several collections."""
    at, identity = _instant(document, field), document["_id"]
    return isinstance(at, datetime), at, isinstance(identity, ObjectId), identity


def _instant(document: Mapping[str, Any], field: str) -> datetime | str:
    at = document.get(field)
    return at if isinstance(at, datetime | str) else ""


def compared(field: str, operator: str, instant: datetime) -> dict[str, Any]:
    """The condition for a field before or after an instant, whether the field is a date or text."""
    exact = from_ms(to_ms(instant))
    return {"$or": [{field: {operator: exact}}, {field: {operator: isoformat(exact)}}]}
