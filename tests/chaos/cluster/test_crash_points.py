"""Every named crash point, under load, on a cluster: heal, drain, and nothing is lost and nothing happened twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from holdfast.contracts.crash_points import CRASH_POINTS
from tests.support.long_run import ENTRIES, LONG_RUN
from tests.support.running_cluster import running_cluster
from tests.support.strikes import API_POINTS, EVERYWHERE, WORKER_POINTS, carry_out, strikes


async def test_every_crash_point_is_survived(tmp_path, rounds, seed, tell, mongo):
    began = time.monotonic()
    rounds = max(2, rounds // 5) if LONG_RUN else 1
    deaths: Counter[str] = Counter()
    async with running_cluster(tmp_path, seed, mongo) as gateway:
        await gateway.start(("api",), ("api", "worker"))
        points = {"api": [*API_POINTS, *EVERYWHERE], "worker": [*WORKER_POINTS, *EVERYWHERE]}
        of_api, of_workers = (strikes(gateway.chance, role, points[role], rounds, passed_at_start=0) for role in points)
        async with gateway.under_load(entries=ENTRIES), asyncio.TaskGroup() as group:
            group.create_task(carry_out(gateway.fleet, of_api, deaths, "api"))
            group.create_task(carry_out(gateway.fleet, of_workers, deaths, "worker"))
            group.create_task(carry_out(gateway.fleet, of_workers, deaths, "worker"))
        report = await gateway.ended()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "deaths": dict(deaths)})

    assert report.violations == []
    assert set(deaths) == set(CRASH_POINTS)
    assert min(deaths.values()) >= rounds
    assert report.figures["entries"] >= ENTRIES
    # The run was worth something: there were answers of every kind, and workers that died with jobs in their hands.
    assert all(report.figures[name] for name in ("duplicates", "conflicts", "unknown", "replayed", "lost attempts"))
