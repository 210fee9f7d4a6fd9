"""I22: the ticks of schedules."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta

from holdfast.contracts.schedules import SCHEDULES, Tick
from holdfast.contracts.times import isoformat

from .facts import Facts, Findings

_A_MOMENT = timedelta(milliseconds=1)


def ticks(facts: Facts) -> Findings:
    """I22: each instant is one job, and none is missing, from the first time that a process looked to the cursor."""
    for workload in facts.workloads.values():
        schedule = workload.schedule
        if schedule is None:
            continue
        bodies = [entry["body"] for (name, _), entry in facts.entries.items() if name == workload.name]
        rung = Counter(Tick.model_validate_json(body).at for body in bodies)
        yield from (f"I22: {isoformat(at)} is {count} jobs" for at, count in sorted(rung.items()) if count > 1)
        row = facts.connection.execute(f"SELECT body FROM {SCHEDULES}").fetchone()  # noqa: S608 - our own name
        if row is None or not rung:
            yield f"I22: {schedule.name} never rang"
            continue
        record = json.loads(row[0])
        first = schedule.next_after(datetime.fromisoformat(record["createdAt"]))
        if min(rung) > first:
            yield f"I22: {schedule.name} began with {isoformat(min(rung))} and not with {isoformat(first)}"
        end = max(*rung, datetime.fromisoformat(record["cursor"]))
        for at in schedule.between(min(rung) - _A_MOMENT, end, 1000):
            if at not in rung:
                yield f"I22: {isoformat(at)} is no job"
