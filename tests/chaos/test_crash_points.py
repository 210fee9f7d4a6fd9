"""Every named crash point, several times, under load: heal, drain, and nothing is lost and nothing happened twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from holdfast.contracts.crash_points import CRASH_POINTS
from tests.support.running_gateway import running_gateway
from tests.support.strikes import API_POINTS, EVERYWHERE, WORKER_POINTS, carry_out, strikes

PASSED_AT_START = 3
"""Durable commits of a process that starts: the migrations of both parts, and the workloads' tables."""


async def test_every_crash_point_is_survived(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    deaths: Counter[str] = Counter()
    async with running_gateway(tmp_path, seed) as gateway:
        await gateway.fleet.start("api")
        points = {"api": [*API_POINTS, *EVERYWHERE], "worker": [*WORKER_POINTS, *EVERYWHERE]}
        of_api, of_workers = (
            strikes(gateway.chance, role, points[role], rounds, passed_at_start=PASSED_AT_START) for role in points
        )
        async with gateway.under_load(), asyncio.TaskGroup() as group:
            group.create_task(carry_out(gateway.fleet, of_api, deaths, "api"))
            group.create_task(carry_out(gateway.fleet, of_workers, deaths, "worker"))
            group.create_task(carry_out(gateway.fleet, of_workers, deaths, "worker"))
        await gateway.ask_again()
        await gateway.drained()
        survivors = [process for process in gateway.fleet.members if process.alive]
        assert [await process.terminate() for process in survivors] == [0, 0, 0, 0]
        report = gateway.check()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "deaths": dict(deaths)})

    assert report.violations == []
    assert set(deaths) == set(CRASH_POINTS)
    assert min(deaths.values()) >= rounds
    # The run was worth something: there were answers of every kind, and workers that died with jobs in their hands.
    assert all(report.figures[name] for name in ("duplicates", "conflicts", "unknown", "replayed", "lost attempts"))
