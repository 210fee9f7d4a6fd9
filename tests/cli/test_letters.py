from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import APP, work_until_idle

ROOT = Path(__file__).resolve().parents[2]


def statuses(program) -> list[str]:
    return [each["reviewStatus"] for each in program("dlq", "list", "--json").json["items"]]


def review(program, *letter_ids) -> None:
    assert program("dlq", "review", *letter_ids, "--reason", "I looked.").code == 0


# --- reading ----------------------------------------------------------------------------------------------------------


def test_list_is_oldest_first_and_pages(program, letters):
    first = program("dlq", "list", "--limit", "2", "--json").json
    assert [each["id"] for each in first["items"]] == letters[:2]
    assert first["total"] == 3
    rest = program("dlq", "list", "--limit", "2", "--cursor", first["next"], "--json").json
    assert [each["id"] for each in rest["items"]] == letters[2:]
    assert rest["next"] is None

    said = program("dlq", "list", "--limit", "2")
    assert letters[0] in said.out
    assert f"--cursor {first['next']}" in said.err


@pytest.mark.parametrize(
    ("arguments", "positions"),
    [
        (("--reason", "DEPOT_CLOSED"), [0, 1]),
        (("--where", "reason=ROAD_BLOCKED"), [2]),
        (("--where", "terminalReasonCode=ROAD_BLOCKED"), [2]),
        (("--where", "depot=north", "--where", "key=parcel/2"), [1]),
        (("--where", "idempotencyKey=parcel/2"), [1]),
        (("--where", "label.status=in a label"), [0, 1, 2]),
        (("--where", "depot=east"), []),
        (("--status", "pending"), [0, 1, 2]),
        (("--where", "status=reviewed"), []),
        (("--workload", "parcels"), [0, 1, 2]),
        (("--where", "workload=courier"), []),
        (("--where", "created-after=2001-01-01T00:00:00Z"), [0, 1, 2]),
        (("--where", "created-before=2001-01-01T00:00:00+01:00"), []),
    ],
)
def test_filters(program, letters, arguments, positions):
    found = program("dlq", "list", "--json", *arguments).json
    assert [each["id"] for each in found["items"]] == [letters[each] for each in positions]
    assert found["total"] == len(positions)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--where", "reason"), "field=value"),
        (("--where", "=x"), "field=value"),
        (("--where", "reason="), "field=value"),
        (("--where", "a=1", "--where", "a=2"), "twice"),
        (("--where", "reason=A", "--reason", "B"), "twice"),
        (("--where", "status=dead"), "pending, reviewed, replayed, closed"),
        (("--where", "created-after=yesterday"), "2026-02-26T12:00:00Z"),
        (("--where", "created-after=2026-02-26T12:00:00"), "offset"),
        (("--where", "generation=1"), "cannot be chosen by generation"),
        (("--cursor", "???"), "cursor"),
    ],
)
def test_filters_that_make_no_sense(program, letters, arguments, words):
    said = program("dlq", "list", *arguments)
    assert said.code == 2
    assert words in said.err


def test_empty_states_say_something(program, empty_ledger):
    assert "no dead letters" in program("dlq", "list").err
    assert "No dead letter matches" in program("dlq", "list", "--where", "depot=x").err
    assert program("dlq", "list", "--json").json == {"items": [], "total": 0, "next": None}


def test_show_tells_everything(program, letters):
    review(program, letters[0])
    shown = program("dlq", "show", letters[0], "--app", APP, "--json").json
    assert shown["terminalReasonCode"] == "DEPOT_CLOSED"
    assert shown["attemptCount"] == len(shown["attemptHistory"]) == 1
    assert shown["payloadSnapshot"] == {"number": "1", "depot": "north", "broken": True, "crash": False}
    assert shown["labels"]["depot"] == "north"
    assert [(each["step"], each["actor"], each["reason"]) for each in shown["decisions"]] == [
        ("reviewed", "ana", "I looked."),
    ]
    said = program("dlq", "show", letters[0])  # also without the app
    for words in ("DEPOT_CLOSED", "Nobody opened.", "parcel/1", '"broken": true', "I looked.", "ana"):
        assert words in said.out


def test_show_of_none(program, letters):
    said = program("dlq", "show", "dl_none")
    assert said.code == 1
    assert "dl_none" in said.err


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_a_letter_from_pending_to_closed(program, letters, home):
    first = letters[0]
    assert program("dlq", "review", first, "--reason", "Closed on Sundays.", "--actor", "eva").code == 0
    assert program("dlq", "replay", first, "--reason", "It is Monday.", "--app", APP).code == 0
    work_until_idle(home / "holdfast-data")
    entry = program("events", "show", "parcel/1", "--workload", "parcels", "--app", APP, "--json").json
    assert (entry["status"], entry["generation"]) == ("processed", 2)
    assert program("dlq", "close", first, "--reason", "Delivered.").code == 0
    decisions = program("dlq", "show", first, "--json").json["decisions"]
    assert [(each["step"], each["actor"]) for each in decisions] == [
        ("reviewed", "eva"),
        ("replayed", "ana"),
        ("closed", "ana"),
    ]


def test_one_refusal_does_not_hold_back_the_others(program, letters):
    review(program, letters[0])
    said = program("dlq", "review", letters[0], "dl_none", letters[1], "--reason", "Again.", "--json")
    assert said.code == 1
    assert said.json["moved"] == [letters[1]]
    assert [each["id"] for each in said.json["refused"]] == [letters[0], "dl_none"]
    assert "reviewed" in said.err


def test_a_letter_that_nobody_reviewed_is_neither_replayed_nor_closed(program, letters):
    for step in ("replay", "close"):
        said = program("dlq", step, letters[0], "--reason", "Hurry.", "--app", APP)
        assert said.code == 1
        assert "pending" in said.err
    assert statuses(program) == ["pending"] * 3


@pytest.mark.parametrize("reason", ["", "   ", "two\nlines"])
def test_a_reason_must_say_something(program, letters, reason):
    said = program("dlq", "review", letters[0], "--reason", reason)
    assert said.code == 2
    assert "--reason" in said.err
    assert statuses(program)[0] == "pending"


def test_a_decision_needs_somebody_to_take_it(program, letters, monkeypatch):
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def nameless():
        raise KeyError

    monkeypatch.setattr("getpass.getuser", nameless)
    said = program("dlq", "review", letters[0], "--reason", "I looked.")
    assert said.code == 2
    assert "--actor" in said.err


# --- replaying many ---------------------------------------------------------------------------------------------------


def test_limit_alone_replays_the_oldest_reviewed(program, letters):
    review(program, letters[2])
    review(program, letters[1])
    said = program("dlq", "replay", "--limit", "1", "--yes", "--app", APP)
    assert said.code == 0
    assert said.out == f"{letters[1]}\n"
    assert "1 of 2" in said.err
    assert statuses(program) == ["pending", "replayed", "reviewed"]

    report = program("dlq", "replay", "--limit", "5", "--yes", "--json", "--app", APP).json
    assert report == {"dryRun": False, "matched": 1, "replayed": [letters[2]], "skipped": [], "refused": []}


@pytest.mark.parametrize("step", ["replay", "close"])
@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_letters_that_nobody_reviewed_are_said_to_wait(program, letters, step, how):
    arguments = ("--where", "depot=north", "--limit", "9", how, "--reason", "Hurry.", "--app", APP)
    said = program("dlq", step, *arguments)
    assert said.code == 1
    assert "2 dead letters wait for review" in said.err
    assert "holdfast dlq review --where depot=north --limit 2 --reason" in said.err
    told = program("dlq", step, *arguments, "--json")
    assert (told.code, told.json["matched"], told.json["skipped"]) == (1, 0, [])
    assert statuses(program) == ["pending"] * 3


def test_a_step_for_some_says_how_many_others_wait_for_review(program, letters):
    review(program, letters[0])
    said = program("dlq", "replay", "--limit", "9", "--yes", "--app", APP)
    assert said.code == 0
    assert "1 of 1 reviewed" in said.err
    assert "2 dead letters wait for review" in said.err


def test_nothing_to_do_is_no_failure(program, letters):
    review(program, *letters)
    for arguments in (
        ("review", "--limit", "5", "--reason", "x"),
        ("replay", "--where", "depot=east"),
        ("close", "--where", "status=replayed", "--reason", "x"),
    ):
        said = program("dlq", *arguments, "--yes", "--app", APP)
        assert said.code == 0
        assert "matches these conditions" in said.err


# --- reviewing and closing many ---------------------------------------------------------------------------------------


def test_review_and_close_choose_as_replay_does(program, letters):
    looked = program("dlq", "review", "--where", "depot=north", "--limit", "1", "--reason", "r", "--dry-run", "--json")
    assert looked.json == {"dryRun": True, "matched": 2, "reviewed": letters[:1], "skipped": [], "refused": []}
    assert statuses(program) == ["pending"] * 3

    reviewed = program("dlq", "review", "--limit", "2", "--reason", "The depot was shut.", "--yes")
    assert (reviewed.code, reviewed.out) == (0, f"{letters[0]}\n{letters[1]}\n")
    assert "2 of 3 pending dead letters reviewed" in reviewed.err
    assert statuses(program) == ["reviewed", "reviewed", "pending"]
    assert program("dlq", "replay", letters[0], "--app", APP).code == 0

    closed = program("dlq", "close", "--limit", "9", "--reason", "All done.", "--yes", "--json")
    assert closed.json == {"dryRun": False, "matched": 2, "closed": letters[:2], "skipped": [], "refused": []}
    assert statuses(program) == ["closed", "closed", "pending"]
    decisions = program("dlq", "show", letters[1], "--json").json["decisions"]
    assert [(each["step"], each["reason"]) for each in decisions] == [
        ("reviewed", "The depot was shut."),
        ("closed", "All done."),
    ]


def test_close_where_its_status_is_given(program, letters):
    review(program, *letters)
    assert program("dlq", "replay", letters[1], "--app", APP).code == 0
    assert program("dlq", "close", "--where", "status=replayed", "--reason", "Delivered.", "--yes").code == 0
    assert statuses(program) == ["reviewed", "closed", "reviewed"]


@pytest.mark.parametrize("step", ["review", "close"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--limit", "3", "--yes"), "--reason"),
        (("--reason", "r"), "--limit N"),
        (("--reason", "r", "--limit", "3"), "--yes"),
        (("dl_1", "--reason", "r", "--limit", "3"), "not both"),
        (("--reason", "r", "--where", "status=closed", "--yes"), "Only"),
        (("--reason", "r", "--where", "generation=1", "--yes"), "cannot be chosen by generation"),
    ],
)
def test_choices_of_many_that_are_refused(program, letters, step, arguments, words):
    said = program("dlq", step, *arguments)
    assert said.code == 2
    assert words in said.err
    assert statuses(program) == ["pending"] * 3


@pytest.mark.parametrize("step", ["review", "close"])
def test_a_dry_run_of_named_letters_moves_none(program, letters, step):
    review(program, letters[0])
    said = program("dlq", step, *letters[:2], "--reason", "r", "--dry-run", "--json")
    assert said.code == 1
    moved, refused = (letters[1], letters[0]) if step == "review" else (letters[0], letters[1])
    assert (said.json["moved"], [each["id"] for each in said.json["refused"]]) == ([moved], [refused])
    assert statuses(program) == ["reviewed", "pending", "pending"]


@pytest.mark.parametrize(("step", "needed"), [("review", True), ("replay", False), ("close", True)])
def test_help_says_what_needs_a_reason(program, step, needed):
    text = " ".join(program("dlq", step, "--help").out.split())
    assert ("The reason is required" in text) is needed
    assert ("The reason is optional" in text) is not needed


def test_a_dry_run_moves_nothing(program, letters):
    review(program, *letters)
    report = program("dlq", "replay", "--limit", "2", "--dry-run", "--json", "--app", APP).json
    assert report == {"dryRun": True, "matched": 3, "replayed": letters[:2], "skipped": [], "refused": []}
    named = program("dlq", "replay", *letters, "--dry-run", "--app", APP)
    assert (named.code, named.err.count("would be replayed")) == (0, 3)
    assert statuses(program) == ["reviewed"] * 3


def test_a_dry_run_refuses_what_the_replay_would_refuse(program, letters):
    """Without their workload, letters cannot be replayed; nor can a letter whose job is no job of it."""
    review(program, *letters)
    for choice in (letters[:1], ("--limit", "3", "--yes")):
        real, dry = (program("dlq", "replay", *choice, *how) for how in ((), ("--dry-run",)))
        assert (real.code, dry.code) == (1, 1)
        assert "The workload parcels is not part of this process" in dry.err
        assert dry.err == real.err
    assert statuses(program) == ["reviewed"] * 3
    for choice in (letters[:2], ("--limit", "3", "--yes")):
        dry = program("dlq", "replay", *choice, "--dry-run", "--app", "tests.cli.parcels:unreplayable")
        assert dry.code == 1
        assert "cannot make a new job" in dry.err
        assert "parcel/1" not in dry.out
    assert statuses(program) == ["reviewed"] * 3


def test_a_dry_run_says_that_the_real_run_needs_yes(program, letters):
    review(program, *letters)
    assert "add --yes" in program("dlq", "replay", "--limit", "2", "--dry-run", "--app", APP).err
    assert "add --yes" not in program("dlq", "replay", "--limit", "2", "--dry-run", "--yes", "--app", APP).err


def test_replay_where(program, letters):
    review(program, *letters)
    report = program("dlq", "replay", "--where", "depot=north", "--yes", "--json", "--app", APP).json
    assert report["replayed"] == letters[:2]
    assert statuses(program) == ["replayed", "replayed", "reviewed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--limit N"),
        (("--yes",), "--limit N"),
        (("--limit", "3"), "--yes"),
        (("--where", "depot=north"), "--yes"),
        (("dl_1", "--limit", "3"), "not both"),
        (("dl_1", "--where", "depot=north"), "not both"),
        (("--where", "status=pending", "--yes"), "Only reviewed"),
        (("--limit", "0", "--yes"), "limit"),
    ],
)
def test_replays_that_are_refused(program, letters, arguments, words):
    review(program, *letters)
    said = program("dlq", "replay", *arguments, "--app", APP)
    assert said.code == 2
    assert words in said.err
    assert statuses(program) == ["reviewed"] * 3


def test_a_replay_needs_the_workload(program, letters):
    review(program, *letters)
    for which in (letters[:1], ["--limit", "3", "--yes"]):
        said = program("dlq", "replay", *which)
        assert said.code == 1
        assert "--app" in said.err
    assert statuses(program) == ["reviewed"] * 3


@pytest.mark.parametrize(("answer", "code", "status"), [("n", 1, "reviewed"), ("y", 0, "replayed")])
def test_on_a_terminal_a_replay_of_many_asks_first(program, letters, home, answer, code, status):
    review(program, letters[0])
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "dlq", "replay", "--limit", "9", "--app", APP],
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOLDFAST_DATA": str(home / "holdfast-data")},
            cwd=ROOT,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "1 of 1" in done.stderr
    assert statuses(program) == [status, "pending", "pending"]


# --- the folder and the app -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("dlq", "list"), ("events", "list"), ("queue", "status"), ("dlq", "review", "x", "--reason", "y")]
)
def test_a_folder_without_a_ledger_is_not_an_empty_ledger(program, home, command):
    said = program(*command, "--data", "mistyped")
    assert said.code == 2
    assert "--data" in said.err
    assert not (home / "mistyped").exists()


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nothing", "module:attribute"),
        ("no_such_module_at_all:app", "no_such_module_at_all"),
        ("tests.cli.parcels:other", "other"),
        ("tests.cli.parcels:not_an_app", "holdfast.App"),
    ],
)
def test_an_app_that_is_none(program, letters, reference, words):
    said = program("dlq", "list", "--app", reference)
    assert said.code == 2
    assert words in said.err


def test_an_app_that_cannot_be_imported(program, letters, home):
    (home / "half_written_app.py").write_text("app = (\n")
    said = program("dlq", "list", "--app", "half_written_app:app")
    assert said.code == 2
    assert "SyntaxError" in said.err


def test_a_file_that_is_no_ledger(program, home):
    (home / "holdfast-data").mkdir()
    (home / "holdfast-data" / "holdfast.db").write_bytes(b"This is not a database, however hard you look. " * 200)
    said = program("dlq", "list")
    assert said.code == 2
    assert "database" in said.err
