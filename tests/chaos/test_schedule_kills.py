"""Processes that are killed while they submit ticks, on a clock that a test moves: each tick is one job (I22)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.running_gateway import running_gateway
from tests.support.schedules import EDGES, MovedClock, live_through


@pytest.mark.parametrize("edge", EDGES)
async def test_each_tick_is_one_job_over_kills_a_change_of_clocks_and_ten_days_of_absence(tmp_path, seed, tell, edge):
    clock, instant = MovedClock(tmp_path / "clock"), datetime.fromisoformat(EDGES[edge])
    clock.go_to(instant - timedelta(hours=1, minutes=50))
    async with running_gateway(tmp_path, seed, **clock.settings) as gateway:
        tell({"seed": seed, **await live_through(gateway, clock, instant)})
