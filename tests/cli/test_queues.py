"""``queue``."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.wiring import open_system
from tests.cli.commands import APP, settings


def test_queues(program, empty_ledger):
    def paused() -> dict[str, bool]:
        return {each["queue"]: each["paused"] for each in program("queue", "status", "--app", APP, "--json").json}

    main, dead = {"courier-events-main", "parcels-main"}, {"courier-events-dlq", "parcels-dead"}
    assert set(paused()) >= main | dead
    assert not any(paused().values())

    assert "parcels-main is paused by ana" in program("queue", "pause", "parcels-main", "--app", APP).err
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


def test_a_pause_keeps_its_reason_and_who_it_was(program, empty_ledger):
    def because() -> set[str | None]:
        return {each["pausedBecause"] for each in program("queue", "status", "--json").json}

    said = program("queue", "pause", "courier", "--reason", "the depot moves")
    assert said.code == 0
    assert "courier-events-main is paused: the depot moves (ana)" in said.err
    assert because() == {None, "the depot moves (ana)"}
    assert "paused: the depot moves (ana)" in program("queue", "status").out
    again = program("queue", "pause", "courier", "--actor", "rui")
    assert (again.code, "already paused: the depot moves (ana)" in again.err) == (0, True)
    assert because() == {None, "the depot moves (ana)"}
    assert program("queue", "resume", "courier").code == 0
    assert "paused by rui" in program("queue", "pause", "courier", "--actor", "rui").err
    assert because() == {None, "paused by rui"}
    assert "Paused (paused by rui)" in " ".join(program("doctor").out.split())
    refused = program("queue", "pause", "courier", "--reason", " ")
    assert (refused.code, "--reason" in refused.err) == (2, True)


@pytest.mark.parametrize("step", ["status", "pause", "resume"])
def test_a_queue_that_nobody_knows(program, empty_ledger, step):
    said = program("queue", step, "parcels-main")
    assert said.code == 2
    assert "--app" in said.err
    assert "courier-events-main" in said.err
