"""What a caller gives, as JSON: data of jobs, pages, batches."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import quote

from holdfast.contracts.times import isoformat

MAX_BATCH: Final = 500
"""How many jobs or emails one request may have."""


@runtime_checkable
class Model(Protocol):
    """An object that says by itself what its JSON is, as pydantic's models do."""

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        """The JSON object."""


Data = Mapping[str, Any] | Model | object
"""The data of a job: a mapping, a pydantic model or a dataclass."""


def json_bytes(value: object) -> bytes:
    """JSON in UTF-8. Raises ``TypeError`` for a value that JSON cannot hold; the message does not repeat the value."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except UnicodeEncodeError:
        message = "The data has half of a character (a lone surrogate)."
    except (ValueError, RecursionError):  # NaN, an infinity, or a value that contains itself
        message = "JSON has no NaN and no infinity, and its values do not contain themselves."
    raise TypeError(message)


def as_object(data: Data) -> dict[str, Any]:
    """The data of a job as a JSON object. Raises ``TypeError`` for data that is no object."""
    if isinstance(data, Mapping):
        return dict(data)
    plain = None if isinstance(data, type) else _of_a_class(data)
    if isinstance(plain, dict):
        return plain
    message = f"The data is a mapping, a pydantic model or a dataclass; {type(data).__name__} is none of them."
    raise TypeError(message)


def _of_a_class(value: object) -> object:
    if isinstance(value, Model):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Not asdict: a model inside of a dataclass has its own way.
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


def _plain(value: object) -> object:
    """What ``json`` cannot write by itself."""
    found = _of_a_class(value)
    if found is not None:
        return found
    match value:
        case Mapping():
            return dict(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case enum.Enum():
            return value.value
        case set() | frozenset() | Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return list(value)
        case _:
            message = f"JSON has no {type(value).__name__}."
            raise TypeError(message)


def query_of(**conditions: object) -> list[tuple[str, str]]:
    """The conditions that are given, as a query. Instants get their offset."""
    return [(name, _in_a_query(value)) for name, value in conditions.items() if value is not None]


def _in_a_query(value: object) -> str:
    if isinstance(value, dt.datetime):
        return isoformat(aware(value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def aware(instant: dt.datetime) -> dt.datetime:
    """The instant. Raises ``ValueError`` for a time without a time zone: nobody knows when it is."""
    if instant.tzinfo is None:
        message = "The time has no time zone: use datetime(..., tzinfo=UTC), for example."
        raise ValueError(message)
    return instant


def header_value(name: str, value: object) -> str:
    """The value of a header. Raises ``ValueError`` for a value that a header cannot have."""
    if isinstance(value, str) and value and value.isascii() and value.isprintable() and " " not in value:
        return value
    message = f"{name} must be visible ASCII characters, without spaces."
    raise ValueError(message)


def part(name: str) -> str:
    """A name as one part of a path. Raises ``ValueError`` for an empty name."""
    if not name:
        message = "A name or an id must not be empty."
        raise ValueError(message)
    if name in {".", ".."}:
        return name.replace(".", "%2E")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        message = "The name has half of a character (a lone surrogate)."
        raise ValueError(message) from None
