"""As ``tests/chaos/test_schedule_kills.py``, on Redis and MongoDB."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.running_cluster import running_cluster
from tests.support.schedules import EDGES, MovedClock, live_through


@pytest.mark.parametrize("edge", EDGES)
async def test_each_tick_is_one_job_over_kills_a_change_of_clocks_and_absence(tmp_path, seed, mongo, tell, edge):
    clock, instant = MovedClock(tmp_path / "clock"), datetime.fromisoformat(EDGES[edge])
    clock.go_to(instant - timedelta(hours=1, minutes=50))
    async with running_cluster(tmp_path, seed, mongo, **clock.settings) as gateway:
        tell({"seed": seed, **await live_through(gateway, clock, instant)})
