from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as some

from holdfast.contracts import schedules
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.schedules import Schedule, Tick

EXPRESSIONS = (
    "30 2 * * *",
    "30 0 * * *",
    "0 0 * * *",
    "0,30 1-3 * * *",
    "15 */2 * * *",
    "*/15 * * * *",
    "*/15 2 * * *",
    "*/20 3 * * *",
    "*/30 0 * * *",
    "0 * * * *",
)
CHANGES = {
    "Europe/Berlin": ("2025-03-30", "2025-10-26"),
    "America/New_York": ("2025-03-09", "2025-11-02"),
    "America/Sao_Paulo": ("2018-11-04", "2018-02-18"),
    "Australia/Lord_Howe": ("2025-10-05", "2025-04-06"),
}
"""The days on which the clocks were put forward, and back. São Paulo changed at midnight, Lord Howe by half an hour."""
DAYS = [(zone, day) for zone, days in CHANGES.items() for day in days]


def local_ticks(zone, day, cron):
    """The ticks of a local day, as people there write them: hour, minute, and offset from UTC in hours."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    ticks = Schedule("s", cron=cron, timezone=zone).between(
        begin.astimezone(UTC) - timedelta(seconds=1), begin.astimezone(UTC) + timedelta(hours=26), 1000
    )
    here = [tick.astimezone(begin.tzinfo) for tick in ticks]
    return [(f"{t:%H:%M}", t.utcoffset() / timedelta(hours=1)) for t in here if t.date() == begin.date()]


# --- daylight saving --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "day", "cron", "expected"),
    [
        # A fixed time that does not exist comes right after the gap; the next fixed time there is the same tick.
        ("Europe/Berlin", "2025-03-30", "30 2 * * *", [("03:00", 2)]),
        ("Europe/Berlin", "2025-03-30", "0 2,3 * * *", [("03:00", 2)]),
        ("America/New_York", "2025-03-09", "30 2 * * *", [("03:00", -4)]),
        ("America/Sao_Paulo", "2018-11-04", "30 0 * * *", [("01:00", -2)]),
        ("America/Sao_Paulo", "2018-11-04", "0 0 * * *", [("01:00", -2)]),
        ("Australia/Lord_Howe", "2025-10-05", "15 2 * * *", [("02:30", 11)]),
        # A fixed time that comes twice counts once: the first time.
        ("Europe/Berlin", "2025-10-26", "30 2 * * *", [("02:30", 2)]),
        ("America/New_York", "2025-11-02", "30 1 * * *", [("01:30", -4)]),
        ("America/Sao_Paulo", "2018-02-17", "30 23 * * *", [("23:30", -2)]),
        ("Australia/Lord_Howe", "2025-04-06", "45 1 * * *", [("01:45", 11)]),
        # The others follow the clock on the wall: nothing in the gap, and both passes of an hour that comes twice.
        ("Europe/Berlin", "2025-03-30", "*/30 1-3 * * *", [("01:00", 1), ("01:30", 1), ("03:00", 2), ("03:30", 2)]),
        ("Europe/Berlin", "2025-03-30", "*/30 2 * * *", []),
        ("Europe/Berlin", "2025-10-26", "*/30 2 * * *", [("02:00", 2), ("02:30", 2), ("02:00", 1), ("02:30", 1)]),
        ("Australia/Lord_Howe", "2025-10-05", "*/15 2 * * *", [("02:30", 11), ("02:45", 11)]),
        ("Australia/Lord_Howe", "2025-10-05", "*/30 3 * * *", [("03:00", 11), ("03:30", 11)]),
        ("Australia/Lord_Howe", "2025-04-06", "*/30 1 * * *", [("01:00", 11), ("01:30", 11), ("01:30", 10.5)]),
    ],
)
def test_a_change_of_the_clocks(zone, day, cron, expected):
    assert local_ticks(zone, day, cron) == expected


@pytest.mark.parametrize(("zone", "day"), DAYS)
@pytest.mark.parametrize("cron", EXPRESSIONS)
def test_ticks_are_the_same_from_wherever_one_counts(zone, day, cron):
    schedule = Schedule("s", cron=cron, timezone=zone)
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - timedelta(hours=13)
    ticks = schedule.between(begin, begin + timedelta(hours=40), 1000)
    assert all(one < other for one, other in pairwise(ticks))
    for tick, following in pairwise(ticks):
        step = (following - tick) / 7
        for part in range(7):
            assert schedule.next_after(tick + part * step) == following
        assert schedule.next_after(following - timedelta(microseconds=1)) == following


@pytest.mark.parametrize(("zone", "day"), [each for each in DAYS if each[0] != "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", EXPRESSIONS)
def test_ticks_are_those_of_cronsim_where_clocks_change_by_an_hour(zone, day, cron):
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) - timedelta(hours=13)
    ticks = Schedule("s", cron=cron, timezone=zone).between(begin, begin + timedelta(hours=40), 1000)
    theirs = CronSim(cron, begin)
    assert [next(theirs).astimezone(UTC) for _ in ticks] == ticks


# --- intervals, and the newest tick -----------------------------------------------------------------------------------


def test_intervals_are_counted_from_1970():
    schedule = Schedule("s", every=timedelta(minutes=15))
    assert schedule.next_after(datetime(2026, 1, 1, 7, 3, tzinfo=UTC)) == datetime(2026, 1, 1, 7, 15, tzinfo=UTC)
    assert schedule.next_after(datetime(2026, 1, 1, 7, 15, tzinfo=UTC)) == datetime(2026, 1, 1, 7, 30, tzinfo=UTC)


@given(
    schedule=some.sampled_from(
        [
            *(Schedule("s", cron=cron, timezone=zone) for cron in EXPRESSIONS for zone in CHANGES),
            Schedule("s", every=timedelta(seconds=7)),
        ]
    ),
    after=some.timedeltas(timedelta(0), timedelta(days=8)).map(
        lambda later: datetime(2025, 10, 20, tzinfo=UTC) + later
    ),
    span=some.timedeltas(timedelta(0), timedelta(hours=5)),
)
def test_the_latest_tick_is_the_last_of_all(schedule, after, span):
    every = schedule.between(after, after + span, 10_000)
    assert schedule.latest(after, after + span) == (every[-1] if every else None)


def test_the_latest_tick_of_many_years_is_found_at_once(monkeypatch):
    schedule = Schedule("s", cron="* * * * * *", timezone="Europe/Berlin")
    calls = []
    monkeypatch.setattr(Schedule, "_times", lambda self, after, of=Schedule._times: calls.append(1) or of(self, after))
    until = datetime(2026, 1, 1, tzinfo=UTC)
    assert schedule.latest(datetime(2016, 1, 1, tzinfo=UTC), until) == until
    assert len(calls) < 100


def test_jitter_is_the_same_everywhere_and_differs_between_ticks():
    one, again = (Schedule("s", every=timedelta(minutes=1), jitter=timedelta(seconds=30)) for _ in range(2))
    ticks = one.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), 200)
    delays = [one.delay_of(tick) for tick in ticks]
    assert delays == [again.delay_of(tick) for tick in ticks]
    assert len(set(delays)) > 100
    assert all(timedelta(0) <= delay < timedelta(seconds=30) for delay in delays)
    assert Schedule("s", every=timedelta(minutes=1)).delay_of(ticks[0]) == timedelta(0)


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "give either a cron expression or an interval"),
        ({"cron": "* * * * *", "every": timedelta(hours=1)}, "give either a cron expression or an interval"),
        ({"cron": "* * * *"}, "Wrong number of fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 0 * * MOO"}, "Bad day-of-week"),
        ({"cron": "0 0 31 2 *"}, "Bad day-of-month"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "1" * 201}, "at most 200 characters"),
        ({"cron": "0 0 1 1 *", "timezone": "America/Sao Paulo"}, "there is no time zone 'America/Sao Paulo'"),
        ({"cron": "0 0 1 1 *", "timezone": "America"}, "there is no time zone"),
        ({"cron": "0 0 1 1 *", "timezone": "../../etc/passwd"}, "there is no time zone"),
        ({"cron": "0 0 1 1 *", "timezone": ""}, "there is no time zone"),
        ({"every": timedelta(milliseconds=999)}, "from one second to ten years"),
        ({"every": timedelta(seconds=1, microseconds=1)}, "in whole milliseconds"),
        ({"every": timedelta(days=4000)}, "from one second to ten years"),
        ({"every": timedelta(days=1), "catch_up": "some"}, "catch_up is one of last, all, none"),
        ({"every": timedelta(days=1), "jitter": timedelta(-1)}, "jitter is a time from zero"),
        ({"every": timedelta(days=1), "name": "a b"}, "a name has 1 to 60 letters"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_with_a_sentence(wrong, sentence):
    with pytest.raises(ConfigurationError) as refused:
        Schedule(**{"name": "s"} | wrong)
    assert sentence in refused.value.message


def test_a_machine_without_time_zones_says_what_to_install(monkeypatch):
    monkeypatch.setattr(schedules, "available_timezones", set)
    with pytest.raises(ConfigurationError, match="pip install tzdata"):
        Schedule("s", cron="0 7 * * *", timezone="Mars/Olympus")
    assert Schedule("s", cron="0 7 * * *").zone is UTC


def test_the_key_of_a_tick_has_the_name_and_the_instant():
    at = datetime(2026, 3, 2, 7, 0, tzinfo=ZoneInfo("America/Sao_Paulo"))
    assert Tick(schedule="remind", at=at).key == "schedule:remind:2026-03-02T10:00:00.000Z"
    assert Tick(schedule="remind", at=at, manual=True).key == "schedule:remind:2026-03-02T10:00:00.000Z:manual"
