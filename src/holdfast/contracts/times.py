"""Instants as they are written on the wire and in the stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"
