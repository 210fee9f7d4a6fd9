"""Instants as they are written on the wire and in the stores, and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def from_ms(milliseconds: int) -> datetime:
    """The instant so many milliseconds after the epoch."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def to_ms(instant: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    return (instant - _EPOCH) // _MILLISECOND


def first_ms(instant: datetime) -> int:
    """The first whole millisecond at or after the instant. What happened before it happened before the instant."""
    return -((_EPOCH - instant) // _MILLISECOND)


def duration_ms(duration: timedelta) -> int:
    """A duration in whole milliseconds, rounded up so that a wait is never cut short."""
    return -(-duration // _MILLISECOND)


def isoformat(instant: datetime) -> str:
    """ISO-8601 in UTC with milliseconds and ``Z``: always 24 characters, so strings sort as instants do."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % (  # noqa: UP031 - half the time of an f-string or of isoformat
        instant.year,
        instant.month,
        instant.day,
        instant.hour,
        instant.minute,
        instant.second,
        instant.microsecond // 1000,
    )


Duration = timedelta | str | float
"""A duration as people write it: see :func:`duration`."""

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(ms|s|m|h|d)")


def duration(value: Duration) -> timedelta:
    """``"500ms"``, ``"10s"``, ``"5m"``, ``"2h"``, ``"7d"``, a number of seconds, or a ``timedelta``.

    Raises ``ValueError`` for anything else, and for a negative duration.
    """
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            message = f"{value!r} is not a duration: write a number and a unit, such as 500ms, 10s, 5m, 2h or 7d."
            raise ValueError(message)
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    try:
        found_duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, TypeError, ValueError) as error:
        message = f"{value!r} is not a duration: give a timedelta, a number of seconds, or a text such as 10s."
        raise ValueError(message) from error
    if found_duration < timedelta(0):
        message = f"{value!r} is not a duration: it is negative."
        raise ValueError(message)
    return found_duration
