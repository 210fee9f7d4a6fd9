"""Cursors: a place in a listing, opaque to its reader."""

from __future__ import annotations

import base64
import binascii

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


def not_a_cursor() -> InvalidQuery:
    """What to raise for text that no listing has returned."""
    return InvalidQuery("The cursor is not one that a listing returned.")
