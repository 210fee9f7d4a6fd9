"""``jobs``: of one workload, and of all of them together."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.ledger import Lease, NewEntry
from holdfast.wiring import open_system
from tests.cli.commands import APP, settings, work_until_idle
from tests.cli.parcels import Parcel, app
from tests.support.waiting import eventually

OWN = ("--workload", "parcels")


@pytest.fixture
def own_app(home):
    (home / "holdfast.toml").write_text(f'app = "{APP}"\n')
    (home / "holdfast.toml").chmod(0o600)


def record(home, *entries: tuple[str, str]) -> None:
    """Record jobs, each a workload and a key, in this order."""

    async def live() -> None:
        async with open_system(settings(home / "holdfast-data"), app) as system:
            for number, (workload, key) in enumerate(entries):
                name = f"job-{workload}-{number}"
                new = NewEntry(workload=workload, key=key, job_id=name, body="{}", fingerprint=name)
                await system.store.record([new])
                seen = (await system.store.entry(workload, key)).first_seen_at

                async def later(seen=seen) -> bool:
                    return await system.store.now() > seen

                await eventually(later)  # the list goes by milliseconds

    asyncio.run(live())


def accept(home, *parcels: Parcel) -> None:
    async def live() -> None:
        async with open_system(settings(home / "holdfast-data"), app) as system:
            for parcel in parcels:
                await system.intake.accept(system.workloads["parcels"], parcel)

    asyncio.run(live())


# --- show -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jobs", "events"])
def test_show(program, letters, name):
    shown = program(name, "show", "parcel/1", *OWN, "--json").json
    assert shown["status"] == "dead_lettered"
    assert shown["attemptCount"] == len(shown["attemptHistory"]) == 1
    assert shown["attemptHistory"][0]["errorCode"] == "DEPOT_CLOSED"
    assert shown["labels"]["depot"] == "north"
    assert shown["content"]["number"] == "1"
    said = program(name, "show", "parcel/1", *OWN)
    for words in ("dead_lettered", "DEPOT_CLOSED", "Nobody opened.", "label depot", '"number": "1"', letters[0]):
        assert words in said.out


def test_the_old_name_is_not_in_the_help(program):
    listed = program("--help").out
    assert "│ jobs" in listed
    assert "│ events" not in listed


@pytest.mark.usefixtures("own_app")
def test_show_finds_the_workload_by_the_key(program, letters):
    assert program("jobs", "show", "parcel/1", "--json").json["workload"] == "parcels"


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_show_asks_for_the_workload_only_if_two_have_the_key(program, home):
    record(home, ("parcels", "same"), ("courier", "same"), ("parcels", "one"))
    said = program("jobs", "show", "same")
    assert said.code == 2
    assert "courier, parcels" in said.err
    assert "--workload" in said.err
    assert program("jobs", "show", "same", "-w", "courier", "--json").json["workload"] == "courier"
    assert program("jobs", "show", "one", "--json").json["workload"] == "parcels"


def test_show_of_none(program, letters):
    said = program("jobs", "show", "evt_1")
    assert said.code == 1
    assert "<source>:<eventId>" in said.err
    assert "HOLDFAST_APP" in said.err
    assert not said.out
    unknown = program("jobs", "show", "evt_1", "--workload", "pigeons")
    assert unknown.code == 2
    assert "There is no workload 'pigeons' here; there are courier" in unknown.err


@pytest.mark.usefixtures("own_app")
def test_show_has_the_attempts_and_letters_of_all_generations(program, home, letters):
    assert program("dlq", "review", letters[0], "--reason", "Read.").code == 0
    assert program("dlq", "replay", letters[0]).code == 0
    work_until_idle(home / "holdfast-data")
    shown = program("jobs", "show", "parcel/1", "--json").json
    assert (shown["status"], shown["generation"]) == ("processed", 2)
    assert [(each["id"], each["reviewStatus"], each["generation"]) for each in shown["letters"]] == [
        (letters[0], "replayed", 1)
    ]
    outcomes = [[each["outcome"] for each in one["attemptHistory"]] for one in shown["generations"]]
    assert outcomes == [["failed"], ["succeeded"]]
    said = program("jobs", "show", "parcel/1").out
    for words in ("Attempts of generation 1", "Attempts of generation 2", f"{letters[0]} (replayed)", "Nobody opened."):
        assert words in said


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_show_tells_when_a_job_is_due_how_far_it_is_and_its_trace(program, home):
    async def live() -> None:
        async with open_system(settings(home / "holdfast-data"), app) as system:
            labels = {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "depot": "north"}
            later = NewEntry(
                workload="parcels", key="later", job_id="l", body="{}", fingerprint="f", delay=timedelta(hours=1)
            )
            running = NewEntry(workload="parcels", key="running", job_id="r", body="{}", fingerprint="f", labels=labels)
            await system.store.record([later, running])
            (claim,) = await system.store.claim(
                "parcels", ["r"], worker="w", lease=timedelta(minutes=1), max_attempts=3
            )
            report = {"done": 3, "total": 10, "note": "at the depot"}
            await system.store.note_progress("parcels", [(Lease("r", claim.fence), report)])

    asyncio.run(live())
    later = program("jobs", "show", "later").out
    assert "due " in later
    assert "progress" not in later
    running = " ".join(program("jobs", "show", "running").out.split())
    assert "progress 3 of 10, at the depot" in running
    assert "trace id 4bf92f3577b34da6a3ce929d0e0e4736" in running
    assert "label traceId" not in running
    assert "due " not in running
    assert program("jobs", "show", "running", "--json").json["progress"]["note"] == "at the depot"
    too_late = program("jobs", "cancel", "running")
    assert (too_late.code, "it is running and cannot be stopped" in too_late.err) == (1, True)
    asked = program("jobs", "cancel", "running", "--app", "tests.cli.parcels:stoppable", "--json")
    assert (asked.code, asked.json["state"]) == (0, "stopping")
    assert "It was asked to stop" in asked.err


# --- list -----------------------------------------------------------------------------------------------------------


def test_list_is_newest_first_and_pages(program, letters):
    first = program("jobs", "list", *OWN, "--limit", "2", "--json").json
    assert [each["key"] for each in first["items"]] == ["parcel/3", "parcel/2"]
    rest = program("jobs", "list", *OWN, "--cursor", first["next"], "--json").json
    assert [each["key"] for each in rest["items"]] == ["parcel/1"]
    said = program("jobs", "list", *OWN, "--status", "dead_lettered", "--limit", "1")
    assert "parcel/3" in said.out
    assert "--cursor" in said.err


@pytest.mark.usefixtures("own_app", "empty_ledger")
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_list_merges_all_workloads_and_pages_through_them(program, home, limit):
    jobs = [
        ("parcels", "p1"),
        ("courier", "c1"),
        ("parcels", "p2"),
        ("parcels", "p3"),
        ("email", "e1"),
        ("courier", "c2"),
    ]
    record(home, *jobs)
    seen, cursor = [], ()
    while True:
        page = program("jobs", "list", "--limit", str(limit), *cursor, "--json").json
        assert len(page["items"]) <= limit
        seen += [(each["workload"], each["key"]) for each in page["items"]]
        if page["next"] is None:
            break
        cursor = ("--cursor", page["next"])
    assert seen == jobs[::-1]
    said = program("jobs", "list")
    assert said.out.split()[:2] == ["workload", "key"]


@pytest.mark.usefixtures("letters")
def test_list_empty_and_wrong(program):
    nothing = program("jobs", "list")
    assert nothing.code == 0
    assert "no job yet" in nothing.err
    assert "no job of courier" in program("jobs", "list", "-w", "courier").err
    assert "HOLDFAST_APP" in nothing.err
    assert "no such job" in program("jobs", "list", "--status", "failed").err
    assert program("jobs", "list", "--json").json == {"items": [], "next": None}
    for wrong in (("--status", "dead"), ("--where", "depot"), ("--cursor", "?"), ("--where", "a=1", "--where", "a=2")):
        for workload in ((), OWN):
            said = program("jobs", "list", *workload, "--app", APP, *wrong)
            assert said.code == 2, wrong
            assert said.err
    unknown = program("jobs", "list", "--workload", "pigeons")
    assert (unknown.code, "there are courier" in unknown.err) == (2, True)


@pytest.mark.usefixtures("own_app", "letters")
def test_list_by_a_label_without_an_index_names_those_that_have_one(program):
    said = program("jobs", "list", *OWN, "--where", "depot=north")
    assert said.code == 2
    assert "label depot" in said.err
    assert "indexed_labels" in said.err
    everywhere = program("jobs", "list", "--where", "depot=north")
    assert everywhere.code == 2
    assert "courier: shipmentId" in everywhere.err
    assert program("jobs", "list", "--where", "shipmentId=shp_1").code == 0


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_list_by_key_and_time(program, home):
    record(home, ("parcels", "ord-1"), ("courier", "ord-2"), ("parcels", "x-3"))

    def keys(*arguments: str) -> list[str]:
        said = program("jobs", "list", *arguments, "--json")
        assert said.code == 0, said.err
        return [each["key"] for each in said.json["items"]]

    assert keys("--key", "ord-2") == ["ord-2"]
    assert keys("--key", "ord-*") == ["ord-2", "ord-1"]
    assert keys("--key", "ord-*", *OWN) == ["ord-1"]
    assert keys("--key", "ord") == []
    assert keys("--since", "1h") == ["x-3", "ord-2", "ord-1"]
    assert keys("--until", "1h") == []
    second = program("jobs", "show", "ord-2", "--json").json["firstSeenAt"]
    assert keys("--since", second) == ["x-3", "ord-2"]
    assert keys("--until", second) == ["ord-1"]
    assert "no such job" in program("jobs", "list", "--since", "2100-01-01T00:00:00Z").err


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            ("--since", "yesterday"),
            "an instant with its offset, such as 2026-02-26T12:00:00Z, or a duration such as 2h",
        ),
        (("--until", "2026-02-26T12:00:00"), "an instant with its offset"),
        (("--since", "2w"), "500ms, 10s, 5m, 2h or 7d"),
        (("--since", "999999999d"), "before the first year"),
        (("--key", "*"), "the beginning of keys"),
        (("--key", ""), "the beginning of keys"),
    ],
)
def test_conditions_that_cannot_be_read(program, wrong, words):
    said = program("jobs", "list", *wrong)
    assert (said.code, words in said.err) == (2, True)


# --- wait -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_wait(program, home):
    accept(home, Parcel(number="1"), Parcel(number="2", broken=True))
    waiting = program("jobs", "wait", "parcel/1", "--timeout", "10ms")
    assert (waiting.code, "has not ended after 10ms: it is received" in waiting.err) == (1, True)
    work_until_idle(home / "holdfast-data")
    done = program("jobs", "wait", "parcel/1")
    assert (done.code, done.json) == (0, {"delivered": True})
    assert program("jobs", "wait", "parcel/1", "--json").json["result"] == {"delivered": True}
    failed = program("jobs", "wait", "parcel/2")
    assert (failed.code, failed.out) == (1, "")
    assert "parcel/2 of parcels is dead_lettered: DEPOT_CLOSED: Nobody opened." in failed.err
    assert "holdfast dlq show dl_" in failed.err
    assert program("jobs", "wait", "parcel/3").code == 1
    assert program("jobs", "wait", "parcel/1", "--timeout", "soon").code == 2


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_show_has_the_traceback_of_each_failed_attempt(program, home):
    accept(home, Parcel(number="1", crash=True))
    work_until_idle(home / "holdfast-data")
    attempts = program("jobs", "show", "parcel/1", "--json").json["attemptHistory"]
    assert len(attempts) == 2
    assert all("unpack" in each["traceback"] for each in attempts)
    said = program("jobs", "show", "parcel/1").out
    assert said.count("Where attempts 1, 2 failed:") == 1
    assert 'return content["weight"]' in said
    (letter,) = program("jobs", "show", "parcel/1", "--json").json["deadLetters"]
    assert 'return content["weight"]' in program("dlq", "show", letter).out


# --- cancel ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_app", "empty_ledger")
def test_cancel(program, home):
    accept(home, Parcel(number="1"), Parcel(number="2"))
    said = program("jobs", "cancel", "parcel/1")
    assert (said.code, "parcel/1 of parcels is cancelled" in said.err) == (0, True)
    shown = program("jobs", "show", "parcel/1")
    assert "expired" in shown.out
    assert "cancelled" in shown.out
    again = program("jobs", "cancel", "parcel/1", "--json")
    assert (again.code, again.json["state"]) == (1, "too_late")
    assert "it is cancelled" in again.err
    work_until_idle(home / "holdfast-data")
    late = program("jobs", "cancel", "parcel/2")
    assert (late.code, "Too late" in late.err, "processed" in late.err) == (1, True, True)
    assert program("jobs", "cancel", "parcel/3").code == 1


@pytest.mark.usefixtures("letters")
def test_cancel_needs_the_workload_itself(program):
    said = program("jobs", "cancel", "parcel/1", *OWN)
    assert (said.code, "HOLDFAST_APP" in said.err) == (2, True)
