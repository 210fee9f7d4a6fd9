"""Instants as they are stored: we write dates; another system may have written ISO text in their place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def instant_of(value: Any) -> datetime | None:  # noqa: ANN401 - any value of a document
    """The instant that a field holds, cut to the millisecond, which is what MongoDB's dates keep.

    None for what is neither a date nor ISO text. Text without a time zone counts as UTC.
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
