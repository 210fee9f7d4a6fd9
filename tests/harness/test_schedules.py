"""Schedules in the harness: each tick once, at its time, over days and over crashes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App, Context, Tick
from holdfast.testing import Harness


@pytest.fixture
def ticks():
    return []


@pytest.fixture
def app(ticks):
    app = App()

    @app.schedule("0 7 * * 1-5", timezone="America/Sao_Paulo", catch_up="none")
    async def remind(tick: Tick, ctx: Context) -> None:
        ticks.append(("remind", tick.at))

    @app.schedule(every="7h", catch_up="none")
    async def sweep(tick: Tick, ctx: Context) -> None:
        ticks.append(("sweep", tick.at))

    return app


def at(ticks, name):
    return [instant for ticked, instant in ticks if ticked == name]


async def test_each_tick_runs_once_and_at_its_time(app, ticks):
    async with Harness(app, start=datetime(2026, 1, 5, 8, 0, tzinfo=UTC)) as h:  # a Monday
        await h.settle()
        assert ticks == []
        await h.advance("7d")
        assert at(ticks, "remind") == [datetime(2026, 1, day, 10, 0, tzinfo=UTC) for day in range(5, 10)]
        assert len(at(ticks, "sweep")) == len(set(at(ticks, "sweep"))) == 24
        for entry in [*await h.jobs("remind"), *await h.jobs("sweep")]:
            assert entry.key.endswith(entry.first_seen_at.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        assert [each.at for each in await h.sent("remind")] == at(ticks, "remind")


async def test_seconds_that_floats_cannot_write_are_met(ticks):
    app = App()

    @app.schedule(every="1.1s", catch_up="none")
    async def often(tick: Tick, ctx: Context) -> None:
        ticks.append(tick.at)

    async with Harness(app) as h:
        await h.settle()
        await h.advance("110s")
        entries = await h.jobs(often)
    assert len(ticks) == 100
    assert [each.first_seen_at for each in entries] == ticks


@pytest.mark.parametrize("point", ["schedules.read", "schedules.submitted", "schedules.moved"])
async def test_a_crash_between_two_ticks_loses_none_and_repeats_none(app, ticks, point):
    async with Harness(app, start=datetime(2026, 1, 5, 8, 0, tzinfo=UTC)) as h:
        await h.advance("1h")
        h.crash(point)
        await h.advance("1d")
    assert at(ticks, "remind") == [datetime(2026, 1, 5, 10, 0, tzinfo=UTC)]


async def test_jitter_delays_a_tick(ticks):
    app = App()

    @app.schedule("0 * * * *", jitter="10m")
    async def hourly(tick: Tick, ctx: Context) -> None:
        ticks.append(h.now - tick.at)

    async with Harness(app) as h:
        await h.advance("6h")
    assert all(timedelta(0) <= late <= timedelta(minutes=10) for late in ticks)
    assert len(set(ticks)) > 1
