"""Positions in a listing by time: the instant and the id of the last item that was read.

The server sorts text before dates, and text before ObjectIds. Our own documents have dates and text ids. Those of
another system have ObjectIds, and their instants may be text (:mod:`.foreign`). A listing has both kinds, and each kind
is sorted by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from bson.errors import InvalidId
from bson.objectid import ObjectId

from holdfast.contracts.times import from_ms, isoformat, to_ms
from holdfast.stores.cursors import not_a_cursor, position_of, to_cursor

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


def before(cursor: str, field: str) -> dict[str, Any]:
    """The condition for items after a position, newest first."""
    at, identity = parse_cursor(cursor)
    conditions: list[dict[str, Any]] = [{field: {"$lt": at}}, {field: at, "_id": {"$lt": identity}}]
    if isinstance(identity, ObjectId):
        conditions.append({field: at, "_id": {"$type": "string"}})
    if isinstance(at, datetime):
        conditions.append({field: {"$type": "string"}})
    return {"$or": conditions}


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
