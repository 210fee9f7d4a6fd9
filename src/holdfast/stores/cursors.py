"""Cursors: opaque text for a position in a listing."""

from __future__ import annotations

import base64
import binascii
import json

from holdfast.contracts.errors import InvalidQuery


def to_cursor(position: str | int) -> str:
    """The cursor of a position."""
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def position_of(cursor: str) -> str:
    """The position that a cursor encodes."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise not_a_cursor() from error


def to_pair_cursor(instant: str, key: str) -> str:
    """The cursor of a position in a listing by time: the instant, and the key, because instants may be equal."""
    return to_cursor(json.dumps((instant, key)))


def pair_of(cursor: str) -> tuple[str, str]:
    """The instant and the key that a cursor encodes."""
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
    """The error for text that is not a cursor of a listing."""
    return InvalidQuery("The cursor is not one that a listing returned.")
