"""Stored instants. Holdfast writes dates; another system may have written ISO text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def instant_of(value: Any) -> datetime | None:  # noqa: ANN401 - any value of a document
    """The instant in a field, cut to the millisecond, because MongoDB's dates have milliseconds.

    None for a value that is neither a date nor ISO text. Text without a time zone counts as UTC.
    """
    if type(value) is datetime:
        return value
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found.replace(microsecond=found.microsecond // 1000 * 1000)
