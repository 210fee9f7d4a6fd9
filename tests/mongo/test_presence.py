"""Heartbeats: the transaction of a killed process does not hold its documents for long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

from holdfast.stores.mongo import server
from holdfast.stores.mongo.link import Link
from tests.support.waiting import eventually

HOLDS_A_DOCUMENT = """
import asyncio, sys
from holdfast.stores.mongo.link import Link

async def main():
    link = Link(sys.argv[1], sys.argv[2])
    await link.open()

    async def hold(session):
        await link.collection("things").update_one({"_id": 1}, {"$set": {"by": "the dead"}}, session=session)
        print("held", flush=True)
        sys.stdin.read()

    await link.transaction(hold)

asyncio.run(main())
"""


@pytest.fixture
async def link(mongo, mongo_database, monkeypatch):
    monkeypatch.setattr(server, "_BEAT", timedelta(milliseconds=200))
    monkeypatch.setattr(server, "_SILENCE", timedelta(seconds=1))
    link = Link(mongo.uri, mongo_database)
    await link.open()
    await link.collection("things").insert_one({"_id": 1, "by": "nobody"})
    yield link
    await link.close()


@pytest.fixture
def holder(mongo, mongo_database, link):
    """A process in the middle of a transaction."""
    command = [sys.executable, "-c", HOLDS_A_DOCUMENT, mongo.uri, mongo_database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


async def write(link, by):
    async def work(session):
        await link.collection("things").update_one({"_id": 1}, {"$set": {"by": by}}, session=session)

    await link.transaction(work)


async def test_a_dead_process_holds_nothing_for_long(link, holder, database):
    holder.kill()
    await asyncio.to_thread(holder.wait)

    await write(link, "the living")  # without heartbeats it would conflict for a minute

    assert (await database["things"].find_one())["by"] == "the living"

    async def forgotten():
        return await database[server.PROCESSES].count_documents({}) == 1

    await eventually(forgotten)


async def test_a_living_process_keeps_what_it_holds(link, database, monkeypatch):
    other = Link(*await _address(link))
    await other.open()
    held, let_go = asyncio.Event(), asyncio.Event()

    async def hold(session):
        await other.collection("things").update_one({"_id": 1}, {"$set": {"by": "the other"}}, session=session)
        held.set()
        await let_go.wait()

    holding = asyncio.create_task(other.transaction(hold))
    await held.wait()
    await link._presence.note({"id": b"0123456789abcdef"})
    before = await _beats(database)

    async def several_beats():
        return await _beats(database) > before + timedelta(seconds=2)

    await eventually(several_beats)  # long enough for both to check each other

    assert await link._presence.end_dead_sessions() == 0
    let_go.set()
    await holding
    assert (await database["things"].find_one())["by"] == "the other"
    await other.close()


async def _address(link):
    hosts = ",".join(f"{host}:{port}" for host, port in link._client.nodes)
    return f"mongodb://{hosts}/", link.database.name


async def _beats(database):
    """The oldest of the last heartbeats."""
    return min([each["seenAt"] async for each in database[server.PROCESSES].find()])


async def test_a_process_that_leaves_in_order_leaves_no_trace(link, database):
    await write(link, "somebody")
    assert await database[server.PROCESSES].count_documents({}) == 1

    await link._presence.close()

    assert await database[server.PROCESSES].count_documents({}) == 0
