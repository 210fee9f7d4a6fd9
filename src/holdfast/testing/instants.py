"""The next instant at which time alone makes something due."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from holdfast.contracts.times import duration_ms, from_ms
from holdfast.contracts.workload import Workload
from holdfast.sqlite import Database
from holdfast.sqlite.database import one

_NEXT: Final = """
SELECT min(at) FROM (
    SELECT due_at AS at FROM queue_jobs WHERE state IN ('delayed', 'leased')
    UNION ALL SELECT deadline FROM ledger_entries WHERE status IN ('received', 'failed')
    UNION ALL SELECT s.value ->> 0 FROM queue_settings AS s JOIN queue_jobs AS q ON s.name = 'limiter:' || q.queue
        WHERE q.state = 'ready'
    UNION ALL SELECT free_at FROM queue_turns WHERE :waiting
)
WHERE at > :now
"""
"""A delayed job, a retry or a lease in the queue; a deadline in the ledger; the end of a rate's window; a permit."""


async def next_instant(
    database: Database, workloads: Sequence[Workload[Any]], until: int, *, waiting: bool
) -> int | None:
    """The next time, after now and not after ``until``; None if nothing becomes due before that.

    ``waiting``: handlers wait for permits of a limit. Times are milliseconds since 1970.
    """
    now = database.now()

    def work(connection: sqlite3.Connection) -> int | None:
        found = one(connection, _NEXT, {"now": now, "waiting": waiting})
        return None if found is None else int(found)

    found = await database.read(work)
    instants = [] if found is None else [found]
    start = from_ms(now)
    schedules = [each.schedule for each in workloads if each.schedule is not None]
    instants += [now + duration_ms(schedule.next_after(start) - start) for schedule in schedules]
    return min((each for each in instants if now < each <= until), default=None)
