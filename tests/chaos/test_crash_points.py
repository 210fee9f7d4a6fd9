"""Every named crash point, several times, under load: heal, drain, and nothing is lost and nothing happened twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from holdfast.contracts.crash_points import CRASH_POINTS
from tests.support.arena import arena
from tests.support.strikes import API_POINTS, EVERYWHERE, WORKER_POINTS, carry_out, strikes

PASSED_AT_START = 3
"""Durable commits of a process that starts: the migrations of both parts, and the workloads' tables."""


async def test_every_crash_point_is_survived(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    deaths: Counter[str] = Counter()
    async with arena(tmp_path, seed) as field:
        await field.fleet.start("api")
        points = {"api": [*API_POINTS, *EVERYWHERE], "worker": [*WORKER_POINTS, *EVERYWHERE]}
        of_api, of_workers = (
            strikes(field.chance, role, points[role], rounds, passed_at_start=PASSED_AT_START) for role in points
        )
        async with field.under_load(), asyncio.TaskGroup() as group:
            group.create_task(carry_out(field.fleet, of_api, deaths, "api"))
            group.create_task(carry_out(field.fleet, of_workers, deaths, "worker"))
            group.create_task(carry_out(field.fleet, of_workers, deaths, "worker"))
        await field.ask_again()
        await field.drained()
        survivors = [process for process in field.fleet.members if process.alive]
        assert [await process.terminate() for process in survivors] == [0, 0, 0, 0]
        report = field.check()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "deaths": dict(deaths)})

    assert report.violations == []
    assert set(deaths) == set(CRASH_POINTS)
    assert min(deaths.values()) >= rounds
    # The run was worth something: there were answers of every kind, and workers that died with jobs in their hands.
    assert all(report.figures[name] for name in ("duplicates", "conflicts", "unknown", "replayed", "lost attempts"))
