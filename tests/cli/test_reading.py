"""``events`` and ``queue``."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.wiring import open_system
from tests.cli.commands import APP, settings


def test_events_show(program, letters):
    shown = program("events", "show", "parcel/1", "--workload", "parcels", "--json").json
    assert shown["status"] == "dead_lettered"
    assert shown["attemptCount"] == len(shown["attemptHistory"]) == 1
    assert shown["attemptHistory"][0]["errorCode"] == "DEPOT_CLOSED"
    assert shown["labels"]["depot"] == "north"
    assert shown["content"]["number"] == "1"
    said = program("events", "show", "parcel/1", "--workload", "parcels")
    for words in ("dead_lettered", "DEPOT_CLOSED", "Nobody opened.", "label depot", '"number": "1"'):
        assert words in said.out


def test_events_show_of_none(program, letters):
    said = program("events", "show", "evt_1")
    assert said.code == 1
    assert "<source>:<eventId>" in said.err
    assert not said.out


def test_events_list_is_newest_first_and_pages(program, letters):
    first = program("events", "list", "--workload", "parcels", "--limit", "2", "--json").json
    assert [each["key"] for each in first["items"]] == ["parcel/3", "parcel/2"]
    rest = program("events", "list", "--workload", "parcels", "--cursor", first["next"], "--json").json
    assert [each["key"] for each in rest["items"]] == ["parcel/1"]
    said = program("events", "list", "--workload", "parcels", "--status", "dead_lettered", "--limit", "1")
    assert "parcel/3" in said.out
    assert "--cursor" in said.err


def test_events_list_empty_and_wrong(program, letters):
    assert "no job of courier" in program("events", "list").err
    assert "no such job" in program("events", "list", "--status", "failed").err
    assert program("events", "list", "--json").json == {"items": [], "next": None}
    for wrong in (("--status", "dead"), ("--where", "depot=north"), ("--where", "depot"), ("--cursor", "?")):
        said = program("events", "list", "--workload", "parcels", "--app", APP, *wrong)
        assert said.code == 2, wrong
        assert said.err


def test_queues(program, empty_ledger):
    def paused() -> dict[str, bool]:
        return {each["queue"]: each["paused"] for each in program("queue", "status", "--app", APP, "--json").json}

    main, dead = {"courier-events-main", "parcels-main"}, {"courier-events-dlq", "parcels-dead"}
    assert set(paused()) >= main | dead
    assert not any(paused().values())

    assert "parcels-main is paused" in program("queue", "pause", "parcels-main", "--app", APP).err
    assert [name for name, value in paused().items() if value] == ["parcels-main"]
    assert "paused" in program("queue", "status", "--app", APP).out
    assert program("queue", "resume", "parcels", "--app", APP).code == 0
    assert not any(paused().values())

    assert program("queue", "pause", "--app", APP).code == 0
    assert {name for name, value in paused().items() if value} & (main | dead) == main
    assert program("queue", "resume", "--app", APP).code == 0
    assert not any(paused().values())


def test_why_a_queue_is_paused(program, home, empty_ledger):
    why = "SENDING_PAUSED: the provider has stopped the account"

    async def prepare() -> None:
        async with open_system(settings(home / "holdfast-data")) as system:
            await system.broker.pause("courier-events-main", reason=why)

    def told() -> list[tuple[str, str]]:
        rows = program("queue", "status", "--json").json
        return [(each["queue"], each["pausedBecause"]) for each in rows if each["pausedBecause"] is not None]

    asyncio.run(prepare())
    assert told() == [("courier-events-main", why)]
    assert f"paused: {why}" in program("queue", "status").out
    assert program("queue", "resume").code == 0
    assert told() == []


@pytest.mark.parametrize("step", ["status", "pause", "resume"])
def test_a_queue_that_nobody_knows(program, empty_ledger, step):
    said = program("queue", step, "parcels-main")
    assert said.code == 2
    assert "--app" in said.err
    assert "courier-events-main" in said.err
