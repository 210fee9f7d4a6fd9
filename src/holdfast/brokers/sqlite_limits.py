"""Limits that all processes share, for the embedded broker: windows, permits and places.

A window counts the jobs of a queue, and places are at even distances in time. All work inside a transaction that the
broker has open. A permit that is not free is a row in ``queue_turns`` (an old name: ``turn`` is the permit's name); a
free permit has no row. Permits use the milliseconds of the broker's clock. Places use microseconds, because two places
may be less than a millisecond apart.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.queues import Permits, RateLimit
from holdfast.contracts.times import duration_ms
from holdfast.sqlite import Migration
from holdfast.sqlite.database import one, to_json

PERMITS_AND_PLACES: Final[Migration] = (
    """
    CREATE TABLE queue_turns (
        name TEXT NOT NULL,
        turn TEXT NOT NULL,
        held INTEGER NOT NULL,
        free_at INTEGER NOT NULL,
        PRIMARY KEY (name, turn)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX queue_turns_free ON queue_turns (free_at)",
    "CREATE TABLE queue_flows (name TEXT PRIMARY KEY, next_at INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE queue_places (
        name TEXT NOT NULL,
        job_id TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (name, job_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX queue_places_at ON queue_places (at)",
)

_SETTING: Final = "SELECT value FROM queue_settings WHERE name = ?"
_SET: Final = "INSERT INTO queue_settings VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"

_KEEP_PLACES: Final = timedelta(hours=1)
_MICROSECOND: Final = timedelta(microseconds=1)

_NOT_FREE: Final = "SELECT count(*) FROM queue_turns WHERE name = :name AND free_at > :now"

_NEXT_FREE: Final = """
SELECT free_at FROM queue_turns WHERE name = :name AND free_at > :now ORDER BY free_at LIMIT 1 OFFSET :surplus
"""

_FORGET_FREE: Final = "DELETE FROM queue_turns WHERE free_at <= :now"

_GIVE: Final = "INSERT INTO queue_turns SELECT :name, value, 1, :free_at FROM json_each(:permits)"

_RELEASE: Final = """
UPDATE queue_turns SET held = 0, free_at = :free_at
WHERE name = :name AND held = 1 AND free_at > :now AND turn IN (SELECT value FROM json_each(:permits))
"""

_FORGET_PLACES: Final = "DELETE FROM queue_places WHERE at <= :old"
_FORGET_FLOWS: Final = "DELETE FROM queue_flows WHERE next_at <= :old"

_PLACES: Final = """
SELECT json_group_object(job_id, at) FROM queue_places
WHERE name = :name AND job_id IN (SELECT value FROM json_each(:ids))
"""

_NEXT_PLACE: Final = "SELECT next_at FROM queue_flows WHERE name = :name"

_LEAVE_PLACES: Final = """
DELETE FROM queue_places WHERE name = :name AND job_id IN (SELECT value FROM json_each(:ids))
"""

_TAKE_PLACES: Final = "INSERT INTO queue_places SELECT :name, key, value FROM json_each(:places)"

_SET_NEXT_PLACE: Final = """
INSERT INTO queue_flows VALUES (:name, :next_at) ON CONFLICT DO UPDATE SET next_at = excluded.next_at
"""


class Window:
    """The present window of a queue's rate limit. A window begins when its first job is taken."""

    def __init__(self, connection: sqlite3.Connection, queue: str, rate: RateLimit, now: int) -> None:
        self._connection = connection
        self._name = f"limiter:{queue}"
        stored = one(connection, _SETTING, (self._name,))
        end, started = json.loads(stored) if stored else (0, 0)
        self._end, self._started = (end, started) if now < end else (now + duration_ms(rate.per), 0)
        self.left = max(0, rate.most - self._started)

    def count(self, jobs: int) -> None:
        """Count this many more jobs as taken."""
        self._connection.execute(_SET, (self._name, to_json((self._end, self._started + jobs))))


class SharedPermits:
    """The permits of one limit, in the present transaction and at this time."""

    def __init__(self, connection: sqlite3.Connection, name: str, rate: RateLimit, now: int) -> None:
        self._connection = connection
        self._rate = rate
        self._now = now
        self._parameters: dict[str, Any] = {"name": name, "now": now}

    def count_free(self) -> tuple[int, timedelta]:
        """How many permits are free, and how long until another may be free."""
        most = self._rate.most
        not_free = one(self._connection, _NOT_FREE, self._parameters)
        if not_free < most:
            return most - not_free, timedelta(0)
        first = one(self._connection, _NEXT_FREE, self._parameters | {"surplus": not_free - most})
        # A holder may release its permit right now: then the permit is free after its rest. That is the soonest,
        # unless a permit of the table is free even earlier.
        soonest = self._free_at(0)
        return 0, timedelta(milliseconds=min(soonest, first or soonest) - self._now)

    def acquire(self, names: Sequence[str], hold: timedelta) -> Permits:
        """Give permits under these names, as many as are free."""
        free, _ = self.count_free()
        given = tuple(names[:free])
        self._connection.execute(_FORGET_FREE, self._parameters)
        free_at = self._free_at(duration_ms(hold))
        self._connection.execute(_GIVE, self._parameters | {"permits": to_json(given), "free_at": free_at})
        _, wait = self.count_free()
        return Permits(given, wait)

    def release(self, names: Sequence[str]) -> None:
        """Release the permits that are still held. Each is free after its rest."""
        self._connection.execute(_RELEASE, self._parameters | {"permits": to_json(names), "free_at": self._free_at(0)})

    def _free_at(self, use: int) -> int:
        """When a permit is free that is used for this long and then rests."""
        # Plus 1: the clock cuts off the part of its millisecond that has passed.
        return self._now + use + duration_ms(self._rate.per) + 1


def reserve(
    connection: sqlite3.Connection, name: str, rate: RateLimit, job_ids: Sequence[str], now: int
) -> list[timedelta]:
    """How long each job has to wait for its place. A job whose time has come gives up its place."""
    now *= 1_000
    distance = rate.distance // _MICROSECOND
    parameters: dict[str, Any] = {"name": name, "ids": to_json(job_ids), "old": now - _KEEP_PLACES // _MICROSECOND}
    connection.execute(_FORGET_PLACES, parameters)
    connection.execute(_FORGET_FLOWS, parameters)
    taken: dict[str, int] = json.loads(one(connection, _PLACES, parameters))
    next_at = max(now, one(connection, _NEXT_PLACE, parameters) or 0)  # unused places are not saved up
    waits = []
    for job_id in job_ids:
        if job_id not in taken:
            taken[job_id] = next_at
            next_at += distance
        waits.append(max(0, taken[job_id] - now))
        if taken[job_id] <= now:
            del taken[job_id]
    connection.execute(_LEAVE_PLACES, parameters)
    connection.execute(_TAKE_PLACES, parameters | {"places": to_json(taken)})
    connection.execute(_SET_NEXT_PLACE, parameters | {"next_at": next_at})
    return [wait * _MICROSECOND for wait in waits]
