"""``schedules``."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.wiring import open_system
from tests.cli.commands import settings
from tests.cli.reminders import app
from tests.support.waiting import eventually

APP = "tests.cli.reminders:app"


@pytest.fixture
def scheduled(home, empty_ledger, monkeypatch):
    monkeypatch.setenv("HOLDFAST_APP", APP)


def work(data) -> None:
    """Run a worker until the last tick of the bank's schedule is processed."""

    async def live() -> None:
        async with open_system(settings(data), app) as system:
            stop = asyncio.Event()
            working = asyncio.create_task(system.worker().run(stop))

            async def ticked() -> bool:
                return (await system.schedules.state("poll_the_bank")).status == "processed"

            await eventually(ticked)
            stop.set()
            await working

    asyncio.run(live())


def test_without_an_app_the_list_says_what_to_do(program, empty_ledger):
    said = program("schedules", "list")
    assert (said.code, said.out) == (0, "")
    assert "@app.schedule" in said.err
    assert "HOLDFAST_APP" in said.err
    assert program("schedules", "list", "--json").json == []


def test_without_a_ledger_the_list_says_what_to_do(program, home):
    said = program("schedules", "list", "--app", APP)
    assert said.code == 2
    assert "holdfast up" in said.err


def test_the_list_shows_next_times_here_and_there(program, scheduled):
    said = program("schedules", "list")
    for words in ("remind", "0 7 * * 1-5 America/Sao_Paulo", " 10:00Z", " 07:00", "poll_the_bank", "every 1s"):
        assert words in said.out
    found = program("schedules", "list", "--json").json
    assert [each["name"] for each in found] == ["poll_the_bank", "remind"]
    assert found[1]["next"][0].endswith("T10:00:00.000Z")
    assert found[1]["nextLocal"][0].endswith("T07:00:00-03:00")


def test_80_columns_are_enough(program, scheduled, home, monkeypatch):
    work(home / "holdfast-data")
    monkeypatch.setattr("holdfast.cli.output._WIDTH_IN_A_FILE", 80)
    program("schedules", "pause", "remind", "--reason", "Carnival.")
    for said in (program("schedules", "list"), program("schedules", "show", "remind")):
        assert all(len(line) <= 80 for line in said.out.splitlines())
        assert "America/Sao_Paulo" in said.out  # not cut in the middle


def test_show_tells_the_last_tick_and_the_status_of_its_job(program, scheduled, home):
    assert "none yet" in program("schedules", "show", "poll_the_bank").out
    work(home / "holdfast-data")
    said = program("schedules", "show", "poll_the_bank")
    for words in ("processed", "schedule:poll_the_bank:2", "all are submitted", "Next times"):
        assert words in said.out
    shown = program("schedules", "show", "poll_the_bank", "--json").json
    assert (shown["lastStatus"], shown["everyMs"]) == ("processed", 1000)
    assert "processed" in program("schedules", "list").out


def test_a_paused_schedule_says_by_whom_and_why(program, scheduled):
    said = program("schedules", "pause", "remind", "--reason", "Carnival.")
    assert (said.code, said.out) == (0, "")
    assert "schedules resume remind" in said.err
    assert "paused" in program("schedules", "list").out
    shown = program("schedules", "show", "remind").out
    assert "by ana, " in shown
    assert "Carnival." in shown
    assert "if it is resumed" in shown
    again = program("schedules", "pause", "remind", "--reason", "Easter.", "--actor", "bo", "--json").json
    assert (again["pausedBy"], again["reason"]) == ("ana", "Carnival.")
    said = program("schedules", "resume", "remind")
    assert "is not paused" in said.err
    assert "07:00:00 -0300" in said.err
    assert not program("schedules", "show", "remind", "--json").json["paused"]


def test_run_submits_a_job_now(program, scheduled):
    program("schedules", "pause", "remind", "--reason", "Carnival.")
    said = program("schedules", "run", "remind")
    key = said.out.strip()
    assert key.startswith("schedule:remind:2")
    assert key in said.err
    entry = program("jobs", "show", key, "--workload", "remind", "--json").json
    assert (entry["status"], entry["content"]["manual"]) == ("received", True)
    assert program("schedules", "show", "remind", "--json").json["lastRun"] in key
    assert program("schedules", "run", "remind", "--json").json["workload"] == "remind"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "weekly"), 1, "no such schedule"),
        (("run", "weekly"), 1, "no such schedule"),
        (("pause", "weekly", "--reason", "x"), 1, "no such schedule"),
        (("resume", "weekly"), 1, "no such schedule"),
        (("pause", "remind"), 2, "--reason"),
        (("pause", "remind", "--reason", " "), 2, "--reason"),
        (("pause", "remind", "--reason", "x", "--actor", "a\tb"), 2, "--actor"),
    ],
)
def test_mistakes(program, scheduled, arguments, code, words):
    said = program("schedules", *arguments)
    assert (said.code, said.out) == (code, "")
    assert words in said.err


def test_a_wrong_expression_in_the_app_is_one_sentence(program, empty_ledger, home, monkeypatch):
    (home / "wrong_app.py").write_text(
        "from holdfast import App, Tick\napp = App()\n@app.schedule('0 25 * * *')\ndef remind(tick: Tick): ...\n"
    )
    monkeypatch.syspath_prepend(str(home))
    said = program("schedules", "list", "--app", "wrong_app:app")
    assert (said.code, said.out) == (2, "")
    assert "the cron expression '0 25 * * *' is wrong (Bad hour)" in said.err
