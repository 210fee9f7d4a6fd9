"""Places in a listing by time: the instant and the id of the last item that was read."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.contracts.times import from_ms, to_ms
from holdfast.stores.cursors import not_a_cursor, position_of, to_cursor

_LONGEST_NUMBER: Final = 15


def cursor_at(instant: datetime, identity: str) -> str:
    """The cursor that stands for this item."""
    return to_cursor(f"{to_ms(instant)}:{identity}")


def place_of(cursor: str) -> tuple[datetime, str]:
    """The instant and the id that a cursor stands for."""
    number, separator, identity = position_of(cursor).partition(":")
    digits = number.removeprefix("-")  # documents may tell of what was before 1970
    if not separator or not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise not_a_cursor()
    try:
        return from_ms(int(number)), identity
    except (ValueError, OverflowError, OSError) as error:
        raise not_a_cursor() from error
