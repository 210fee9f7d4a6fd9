"""Listings: pages, cursors (opaque text for a position), and the refusal of a query that no index can answer."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.queries import Page, Slice

MOST_BODY_BYTES: Final = 8 * 1024 * 1024
"""When so much was read of bodies, no more letters are read at once: a batch must not grow with what senders sent."""

Row = TypeVar("Row")
Item = TypeVar("Item")


def slice_of(
    rows: Sequence[Row], page: Page, item_of: Callable[[Row], Item], cursor_of: Callable[[Row], str]
) -> Slice[Item]:
    """One page of the rows. One row more than the page was read, if there is one: it shows that there are more."""
    more = cursor_of(rows[page.limit - 1]) if len(rows) > page.limit else None
    return Slice([item_of(row) for row in rows[: page.limit]], more)


def texts_with(prefix: str) -> tuple[str, str]:
    """The texts that begin so: from the first of these two (included) to the second (not included)."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


# --- cursors --------------------------------------------------------------------------------------------------


def to_cursor(position: str | int) -> str:
    """The cursor of a position."""
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def position_of(cursor: str) -> str:
    """The position that a cursor encodes."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise not_a_cursor() from error


def number_of(cursor: str) -> int:
    """The number of the row that a cursor encodes."""
    position = position_of(cursor)
    if not position.isascii() or not position.isdigit() or len(position) > 18:  # noqa: PLR2004 - fits SQLite's integers
        raise not_a_cursor()
    return int(position)


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


# --- what an index can answer -----------------------------------------------------------------------------------


def check_labels(workload: str, labels: Iterable[str], indexed: Collection[str]) -> None:
    """Refuse to find entries by a label that has no index."""
    for label in labels:
        if label not in indexed:
            message = f"Entries of {workload} cannot be found by the label {label!r}: no index has it."
            raise InvalidQuery(message)


def check_fields(kind: Kind, names: Iterable[str]) -> None:
    """Refuse to find records by a field that has no index."""
    indexed = {kind.key, *(name for index in kind.indexes for name in index)}
    for name in names:
        if name not in indexed:
            message = f"Records of {kind.name} cannot be found by {name!r}: no index has it."
            raise InvalidQuery(message)
