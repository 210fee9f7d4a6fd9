"""Cursors: a place in a listing, opaque to its reader."""

from __future__ import annotations

import base64
import binascii
import json

from holdfast.contracts.errors import InvalidQuery


def to_cursor(position: str | int) -> str:
    """The cursor that stands for a place."""
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def position_of(cursor: str) -> str:
    """The place that a cursor stands for."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise not_a_cursor() from error


def to_pair_cursor(instant: str, key: str) -> str:
    """The cursor that stands for a place in a listing by time: the instant, and the key among those that share it."""
    return to_cursor(json.dumps((instant, key)))


def pair_of(cursor: str) -> tuple[str, str]:
    """The instant and the key that a cursor stands for."""
    try:
        pair = json.loads(position_of(cursor))
    except (ValueError, RecursionError) as error:
        raise not_a_cursor() from error
    match pair:
        case [str(instant), str(key)]:
            return instant, key
        case _:
            raise not_a_cursor()


def not_a_cursor() -> InvalidQuery:
    """What to raise for text that no listing has returned."""
    return InvalidQuery("The cursor is not one that a listing returned.")
