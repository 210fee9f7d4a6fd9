from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App, Collection
from holdfast.contracts.errors import ConfigurationError, NotFound
from holdfast.contracts.schedules import SCHEDULES, Schedule, Tick
from holdfast.engine import schedules as engine_schedules
from holdfast.engine.schedules import LATE, MOST_AT_ONCE, Schedules
from holdfast.telemetry import events
from holdfast.wiring import open_system
from tests.support.clock import START, ManualClock
from tests.support.gateway import assembled
from tests.support.schedules import Ticking, ticks_of
from tests.support.settings import Settings
from tests.support.waiting import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri")


@pytest.fixture
def emitted():
    found = []

    def note(event, fields):
        found.append((event, fields))

    events.attach(note)
    yield found
    events.detach(note)


async def rounds(gateway, duration, step=SECOND):
    """Time goes by, and maintenance does its rounds."""
    end = gateway.clock.now() + duration
    while gateway.clock.now() < end:
        await gateway.schedules.round()
        gateway.clock.advance(step)
    await gateway.schedules.round()


def another(gateway):
    """The schedules of another process on the same store."""
    return Schedules(gateway.store, gateway.intake, gateway.clock, gateway.workloads.values())


# --- ticks ------------------------------------------------------------------------------------------------------------


async def test_a_new_schedule_starts_from_now_and_ticks_once_at_each_instant():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await rounds(gateway, 10 * MINUTE)
        assert await ticks_of(gateway.store) == [START + number * MINUTE for number in range(1, 11)]


async def test_ticks_of_each_second_are_complete_though_rounds_take_a_little_longer():
    async with assembled(Ticking(every=SECOND)) as gateway:
        await rounds(gateway, MINUTE, step=timedelta(milliseconds=1370))
        assert await ticks_of(gateway.store) == [START + number * SECOND for number in range(1, 61)]


async def test_a_tick_is_one_job_however_many_processes_there_are():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        others = [another(gateway) for _ in range(3)]
        for _ in range(600):
            for each in (gateway.schedules, *others):
                await each.round()
            gateway.clock.advance(SECOND)
        assert await ticks_of(gateway.store) == [START + number * MINUTE for number in range(1, 10)]
        async with gateway.working():
            await eventually(lambda: len(gateway.workload.handled) >= 9)
        assert set(Counter(tick.key for tick in gateway.workload.handled).values()) == {1}


async def test_a_crash_before_the_cursor_moves_submits_nothing_twice(monkeypatch):
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await rounds(gateway, MINUTE)
        gateway.clock.advance(MINUTE)

        def crash(point):
            if point == "schedules.submitted":
                raise KeyboardInterrupt

        monkeypatch.setattr(engine_schedules, "crash_point", crash)
        with pytest.raises(KeyboardInterrupt):
            await gateway.schedules.round()
        monkeypatch.undo()
        cursor = (await gateway.store.get(SCHEDULES, "nightly"))["cursor"]
        assert datetime.fromisoformat(cursor) == START + MINUTE
        await another(gateway).round()
        assert await ticks_of(gateway.store) == [START + MINUTE, START + 2 * MINUTE]


async def test_a_tick_waits_for_its_jitter():
    workload = Ticking(every=HOUR, jitter=10 * MINUTE)
    async with assembled(workload) as gateway:
        await rounds(gateway, HOUR, step=10 * SECOND)
        (tick,) = await ticks_of(gateway.store)
        entry = await gateway.store.entry("nightly", Tick(schedule="nightly", at=tick).key)
        assert timedelta(0) < workload.schedule.delay_of(tick) < 10 * MINUTE
        assert abs(entry.not_before - (tick + workload.schedule.delay_of(tick))) < SECOND


async def test_the_clock_of_the_store_decides():
    workload = Ticking(every=MINUTE)
    async with assembled(workload) as gateway:
        fast = ManualClock(START + 365 * DAY)
        process = Schedules(gateway.store, gateway.intake, fast, [workload])
        for _ in range(5):
            await process.round()
            fast.advance(HOUR)
        assert await ticks_of(gateway.store) == []


# --- what a round costs -----------------------------------------------------------------------------------------------


async def test_a_round_without_schedules_or_without_a_due_tick_asks_the_store_nothing():
    async with assembled(Ticking(every=HOUR)) as gateway:
        calls = gateway.store.calls
        calls.clear()
        empty = Schedules(gateway.store, gateway.intake, gateway.clock, [])
        for _ in range(10):
            await empty.round()
        assert calls == {}
        await gateway.schedules.round()
        assert calls == {"now": 1, "find_records": 1, "apply": 1}
        calls.clear()
        for _ in range(60):
            gateway.clock.advance(SECOND)
            await gateway.schedules.round()
        assert calls == {"now": 6, "find_records": 6}


# --- absence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "back_at", "expected"),
    [
        ("last", START + 10 * DAY + 20 * MINUTE, [START + 10 * DAY]),
        ("none", START + 10 * DAY + 20 * MINUTE, []),
        ("none", START + 10 * DAY + 30 * SECOND, [START + 10 * DAY]),
        ("all", START + 10 * DAY + 20 * MINUTE, [START + number * HOUR for number in range(1, 241)]),
    ],
)
async def test_ten_days_of_absence(catch_up, back_at, expected, emitted):
    async with assembled(Ticking(every=HOUR, catch_up=catch_up)) as gateway:
        await gateway.schedules.round()
        gateway.clock.advance(back_at - gateway.clock.now())
        await rounds(gateway, 5 * SECOND)
        assert await ticks_of(gateway.store) == expected
        (told,) = [fields for event, fields in emitted if event == events.SCHEDULE_LATE]
        assert told == {"schedule": "nightly", "since": "2026-02-26T13:00:00.000Z", "catch_up": catch_up}
        await rounds(gateway, HOUR, step=10 * SECOND)
        following = max(START + 10 * DAY, *expected, START) + HOUR
        assert await ticks_of(gateway.store) == [*expected, following]


async def test_weeks_of_missed_seconds_are_submitted_in_bounded_rounds():
    async with assembled(Ticking(every=SECOND, catch_up="all")) as gateway:
        await gateway.schedules.round()
        gateway.clock.advance(21 * DAY)
        assert [await gateway.schedules.round() for _ in range(3)] == [MOST_AT_ONCE] * 3
        # Another process goes on where this one was, and submits none of them again.
        assert await another(gateway).round() == MOST_AT_ONCE
        assert await ticks_of(gateway.store) == [START + number * SECOND for number in range(1, 4 * MOST_AT_ONCE + 1)]


async def test_ticks_that_are_a_little_late_were_not_missed():
    async with assembled(Ticking(every=SECOND, catch_up="none")) as gateway:
        await rounds(gateway, SECOND)
        gateway.clock.advance(LATE)
        await gateway.schedules.round()
        assert len(await ticks_of(gateway.store)) == 11


# --- changed clocks and expressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("back", [30 * SECOND, HOUR, 400 * DAY])
async def test_a_clock_that_goes_back_submits_no_tick_twice_and_loses_none(back):
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await rounds(gateway, 5 * MINUTE)
        gateway.clock.advance(-back)
        begin, process = gateway.clock.now(), another(gateway)
        for _ in range(20 * 60):
            await process.round()
            gateway.clock.advance(SECOND)
        before = {START + number * MINUTE for number in range(1, 6)}
        since = Schedule("nightly", every=MINUTE).between(begin, gateway.clock.now() - SECOND, 100)
        assert await ticks_of(gateway.store) == sorted(before | set(since))


async def test_a_clock_that_was_far_ahead_does_not_silence_a_schedule():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await gateway.schedules.round()
        gateway.clock.advance(400 * DAY)
        await gateway.schedules.round()
        gateway.clock.advance(-400 * DAY)
        process = another(gateway)
        for _ in range(300):
            await process.round()
            gateway.clock.advance(SECOND)
        on_time = [tick for tick in await ticks_of(gateway.store) if tick < START + DAY]
        assert on_time == [START + number * MINUTE for number in range(1, 5)]


async def test_a_changed_expression_or_time_zone_starts_from_now():
    async with assembled(Ticking(cron="0 9 * * *", timezone="Europe/Berlin")) as gateway:
        await gateway.schedules.round()
        gateway.clock.advance(3 * DAY)
        changed = Ticking(cron="0 9 * * *", timezone="America/Sao_Paulo")
        process = Schedules(gateway.store, gateway.intake, gateway.clock, [changed])
        await process.round()
        assert await ticks_of(gateway.store) == []
        for _ in range(24 * 60):
            gateway.clock.advance(MINUTE)
            await process.round()
        assert await ticks_of(gateway.store) == [datetime(2026, 3, 1, 12, 0, tzinfo=UTC) + DAY]


async def test_while_two_versions_of_an_app_run_neither_loses_a_tick():
    async with assembled(Ticking(cron="*/2 * * * *")) as gateway:
        await gateway.schedules.round()
        newer = Schedules(gateway.store, gateway.intake, gateway.clock, [Ticking(cron="*/3 * * * *")])
        for _ in range(13 * 60):
            await newer.round()
            await gateway.schedules.round()
            gateway.clock.advance(SECOND)
        assert await ticks_of(gateway.store) == [START + minute * MINUTE for minute in (2, 3, 4, 6, 8, 9, 10, 12)]


# --- people -----------------------------------------------------------------------------------------------------------


async def test_ticks_of_a_pause_are_skipped_in_every_process():
    async with assembled(Ticking(every=MINUTE, catch_up="all")) as gateway:
        worker = another(gateway)

        async def minutes(number):
            for _ in range(number * 60):
                await worker.round()
                gateway.clock.advance(SECOND)

        await minutes(3)
        paused = await gateway.schedules.pause("nightly", actor="ana", reason="The bank is closed.")
        assert (paused.paused, paused.paused_by, paused.reason) == (True, "ana", "The bank is closed.")
        assert paused.paused_at == gateway.clock.now()
        again = await gateway.schedules.pause("nightly", actor="bo", reason="Again.")
        assert again.paused_by == "ana"
        await minutes(60)
        resumed = await gateway.schedules.resume("nightly", actor="bo", reason="Open again.")
        assert (resumed.paused, resumed.paused_by, resumed.reason) == (False, None, None)
        await minutes(2)
        expected = [START + number * MINUTE for number in (1, 2, 64)]
        assert await ticks_of(gateway.store) == expected
        record = await gateway.store.get(SCHEDULES, "nightly")
        assert (record["resumedBy"], record["resumeReason"]) == ("bo", "Open again.")


async def test_a_schedule_can_be_paused_before_any_process_has_seen_it():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await gateway.schedules.pause("nightly", actor="ana", reason="Not yet.")
        await rounds(gateway, 5 * MINUTE)
        assert await ticks_of(gateway.store) == []


async def test_a_person_can_run_a_paused_schedule_now():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        await gateway.schedules.pause("nightly", actor="ana", reason="Not yet.")
        receipt = await gateway.schedules.run("nightly", actor="ana")
        assert receipt.key == "schedule:nightly:2026-02-26T12:00:00.000Z:manual"
        assert (await gateway.schedules.state("nightly")).last_run == START
        async with gateway.working():
            await eventually(lambda: gateway.workload.handled)
        assert [tick.manual for tick in gateway.workload.handled] == [True]


async def test_the_state_shows_the_last_tick_its_job_and_the_next_times():
    async with assembled(Ticking(cron="0 7 * * 1-5", timezone="America/Sao_Paulo")) as gateway:
        (new,) = await gateway.schedules.states()
        assert (new.last_tick, new.status) == (None, None)
        await rounds(gateway, DAY, step=HOUR)
        (state,) = await gateway.schedules.states()
        assert state.last_tick == datetime(2026, 2, 27, 10, 0, tzinfo=UTC)
        assert state.status == "received"
        assert [f"{each:%a %H:%M}" for each in state.next] == [
            f"{day} 10:00" for day in ["Mon", "Tue", "Wed", "Thu", "Fri"]
        ]


async def test_an_unknown_schedule_is_not_found():
    async with assembled(Ticking(every=MINUTE)) as gateway:
        with pytest.raises(NotFound, match="schedules list"):
            await gateway.schedules.run("daily", actor="ana")


# --- other people's code ----------------------------------------------------------------------------------------------


async def test_a_schedule_whose_workload_raises_does_not_stop_the_others(monkeypatch, emitted):
    broken, sound = Ticking("broken", every=MINUTE), Ticking("sound", every=MINUTE)
    async with assembled(broken, others=[sound]) as gateway:
        monkeypatch.setattr(broken, "labels", lambda data: 1 / 0)
        await rounds(gateway, 3 * MINUTE)
        assert len(await ticks_of(gateway.store, "sound")) == 3
        failures = [fields for event, fields in emitted if event == events.SCHEDULE_FAILED]
        assert {(each["schedule"], each["error"]) for each in failures} == {("broken", "ZeroDivisionError")}
        monkeypatch.undo()
        await rounds(gateway, MINUTE)
        assert START + 4 * MINUTE in await ticks_of(gateway.store, "broken")


@pytest.mark.parametrize("mistake", ["key", "contract", "ttl", "name"])
async def test_a_workload_that_cannot_be_a_schedule_is_refused(mistake):
    async with assembled(Ticking("other", every=MINUTE)) as gateway:
        workload = Ticking(every=MINUTE, jitter=SECOND)
        both = [workload]
        if mistake == "key":
            workload.key = lambda data: "one"
        elif mistake == "contract":
            workload.contract = type("Other", (Tick,), {})
        elif mistake == "ttl":
            workload.ttl = SECOND
        else:
            both = [workload, Ticking(every=HOUR)]
        with pytest.raises(ConfigurationError, match="Schedule 'nightly'"):
            Schedules(gateway.store, gateway.intake, gateway.clock, both)


async def test_a_collection_with_the_name_of_ours_is_refused(tmp_path):
    workload = Ticking(every=MINUTE)
    workload.collections = (Collection(SCHEDULES, key="number"),)
    with pytest.raises(ConfigurationError, match="nightly: schedules is a collection of Holdfast itself"):
        async with open_system(Settings(holdfast_data=tmp_path), App([workload])):
            pass
