"""Stored fields, and listings by them: the dataclasses of the contracts say what a store writes and reads.

Both stores use this code. So a new field of a dead letter, of an entry or of an attempt needs no change in a store,
except a column of its own in SQLite. The mappings are built once, from the types of the fields.

A listing has pages, cursors (opaque text for a position), and a refusal for a query that no index can answer.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from enum import EnumType
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.errors import ConfigurationError, InvalidQuery
from holdfast.contracts.ledger import AttemptOutcome, LedgerEntry
from holdfast.contracts.queries import EntryQuery, Page, Slice
from holdfast.contracts.transitions import MoveToDeadLetters
from holdfast.contracts.workload import Workload

Made = TypeVar("Made")
Convert = Callable[[Any], Any]

# --- names ----------------------------------------------------------------------------------------------------

_SPECIFIED: Final = {
    "key": "idempotencyKey",
    "attempts": "attemptHistory",
    "reason_code": "terminalReasonCode",
    "reason_message": "terminalReasonMessage",
}


@cache
def public_name(field: str) -> str:
    """The name of a field in documents and views: the specification's, or else the field's own in camel case."""
    first, *others = field.split("_")
    return _SPECIFIED.get(field) or first + "".join(map(str.capitalize, others))


def names_of(kind: type[object]) -> tuple[str, ...]:
    """The fields of a dataclass, in order."""
    return tuple(get_type_hints(kind))


_LEDGER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")


def entries_name(workload: Workload[Any]) -> str:
    """The name of a workload's entries for people who read the store: a view in SQLite, a collection in MongoDB."""
    return _checked(workload.ledger_name or f"{workload.name}_jobs", workload)


def letters_name(workload: Workload[Any]) -> str:
    """The name of a workload's dead letters for people who read the store."""
    return _checked(workload.letters_name or f"{workload.name}_dead_letters", workload)


def _checked(name: str, workload: Workload[Any]) -> str:
    if not _LEDGER_NAME.fullmatch(name):
        message = (
            f"The store cannot have jobs of the workload {workload.name!r} under the name {name!r}: use letters, "
            "digits, - and _."
        )
        raise ConfigurationError(message)
    return name


# --- reading --------------------------------------------------------------------------------------------------


def reader(
    kind: type[Made],
    *,
    stored_as: Callable[[str], str] = public_name,
    instant: Convert | None = None,
    nested: Convert | None = None,
    **special: Convert,
) -> Callable[..., Made]:
    """A function that makes an object of this dataclass from its stored fields, and from fields given by name.

    ``instant`` converts a stored instant, ``nested`` a stored list or object, and ``special`` the field with that name.
    A field that is not stored, or is null, gets its default.
    """
    plan = [
        (name, stored_as(name), special.get(name) or _conversion(hint, instant, nested))
        for name, hint in get_type_hints(kind).items()
    ]

    def read(stored: Mapping[str, Any], **fields: Any) -> Made:  # noqa: ANN401 - fields of any type
        for name, stored_name, convert in plan:
            value = stored.get(stored_name)
            if value is not None and name not in fields:
                fields[name] = value if convert is None else convert(value)
        return kind(**fields)

    return read


def _conversion(hint: Any, instant: Convert | None, nested: Convert | None) -> Convert | None:  # noqa: ANN401 - a type
    """How a stored value becomes a value of this type; None when it is one already."""
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if hint is datetime:
        return instant
    if isinstance(hint, EnumType):
        return hint
    if get_origin(hint) is tuple:
        item: Convert = get_args(hint)[0]
        made = reader(get_args(hint)[0], instant=instant) if is_dataclass(item) else item
        return lambda stored: tuple(map(made, stored if nested is None else nested(stored)))
    return nested if get_origin(hint) is Mapping else None


# --- writing --------------------------------------------------------------------------------------------------

_CHANGES_WITH_THE_LETTER: Final = frozenset({"updated_at", "expires_at"})

LETTER_FROM_TRANSITION: Final = tuple(name for name in names_of(DeadLetter) if name in names_of(MoveToDeadLetters))
"""The fields of a dead letter that the transition gives. A field that it leaves out is the entry's."""

LETTER_FROM_ENTRY: Final = tuple(
    name for name in names_of(DeadLetter) if name in names_of(LedgerEntry) and name not in _CHANGES_WITH_THE_LETTER
)
"""The fields that a dead letter has from its entry."""

MOST_BODY_BYTES: Final = 8 * 1024 * 1024
"""When so much was read of bodies, no more letters are read at once: a batch must not grow with what senders sent."""
LOST: Final = {
    "outcome": AttemptOutcome.LOST.value,
    "errorCode": "LOST",
    "errorMessage": "The worker vanished before it settled the attempt.",
}
"""What closes an attempt whose worker vanished (I5), beside the time."""

EXPIRED: Final = ("EXPIRED", "The job outlived its deadline.")
"""The error of an attempt of a job that expired."""


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
    stem = prefix.rstrip(_LAST)
    if not stem:
        message = "A beginning of keys must have at least one character that is not the last of Unicode."
        raise InvalidQuery(message)
    following = ord(stem[-1]) + 1
    return prefix, stem[:-1] + chr(_AFTER_SURROGATES if following == _FIRST_SURROGATE else following)


_LAST: Final = "\U0010ffff"
_FIRST_SURROGATE: Final = 0xD800  # no text of a store has surrogates
_AFTER_SURROGATES: Final = 0xE000


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
    return _number(position_of(cursor))


def _number(digits: str) -> int:
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:  # noqa: PLR2004 - fits SQLite's integers
        raise not_a_cursor()
    return int(digits)


def to_numbers_cursor(instant: int, row: int) -> str:
    """The cursor of a row in a listing by time: the instant in milliseconds, and the row, because instants repeat."""
    return to_cursor(f"{instant}.{row}")


def numbers_of(cursor: str) -> tuple[int, int]:
    """The instant and the row that a cursor encodes."""
    instant, _, row = position_of(cursor).partition(".")
    return _number(instant), _number(row)


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


def check_query(query: EntryQuery, indexed: Collection[str]) -> None:
    """Refuse to find entries by a label that has no index, or by what is no text that a store could have."""
    for label in query.labels:
        if label not in indexed:
            message = f"Entries of {query.workload} cannot be found by the label {label!r}: no index has it."
            raise InvalidQuery(message)
    for text in (query.key, query.key_prefix, *query.labels.values()):
        if text is not None and _SURROGATE.search(text):
            message = "Entries cannot be found by a text that is not valid Unicode."
            raise InvalidQuery(message)
    for instant in (query.seen_after, query.seen_before):
        if instant is not None and (instant.tzinfo is None or not _FIRST_YEAR <= instant.year <= _LAST_YEAR):
            message = f"A time must have a time zone, and a year from {_FIRST_YEAR} to {_LAST_YEAR}."
            raise InvalidQuery(message)


_FIRST_YEAR, _LAST_YEAR = 1970, 9998  # far enough from the first and the last instant that Python can compute with
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def check_fields(kind: Kind, names: Iterable[str]) -> None:
    """Refuse to find records by a field that has no index."""
    indexed = {kind.key, *(name for index in kind.indexes for name in index)}
    for name in names:
        if name not in indexed:
            message = f"Records of {kind.name} cannot be found by {name!r}: no index has it."
            raise InvalidQuery(message)
