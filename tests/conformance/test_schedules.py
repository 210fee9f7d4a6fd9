"""Schedules on both deployments: several processes on one SQLite file, and on MongoDB with Valkey."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from datetime import datetime, timedelta

import pytest

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.crash_points import POINTS_OF_SCHEDULES, arm
from holdfast.contracts.effects import Upsert
from holdfast.contracts.schedules import SCHEDULES
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Intake
from holdfast.engine.schedules import Schedules
from holdfast.sqlite import Database
from holdfast.stores.mongo import MongoStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.wiring.features import FRAME_COLLECTIONS
from tests.support.clock import ManualClock
from tests.support.schedules import Ticking, ticks_of
from tests.support.valkey_server import RedisPlace, forget

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class Embedded:
    """Each process has its own connections to one file."""

    def __init__(self, path) -> None:
        self._path = path
        self._databases = []
        self.clock = ManualClock()

    async def process(self, workload):
        database = Database(self._path, now=self.clock.ms)
        self._databases.append(database)
        broker = SqliteBroker(database)
        store = SqliteStore(database, [workload], outbox=broker, collections=FRAME_COLLECTIONS)
        await store.open()
        await broker.open()
        return store, Schedules(store, Intake(store, broker), self.clock, [workload])

    async def pass_time(self, duration):
        self.clock.advance(duration)

    async def close(self):
        for database in self._databases:
            await database.close()


class Cluster:
    """Each process has its own connections. The clock is the server's, moved ahead."""

    def __init__(self, uri, database, place) -> None:
        self._uri, self._database, self._place = uri, database, place
        self._stores, self._brokers = [], []
        self._passed = timedelta(0)
        self.clock = ManualClock()

    async def process(self, workload):
        store = MongoStore(self._uri, self._database, [workload], collections=FRAME_COLLECTIONS)
        broker = BullmqBroker(self._place.url, prefix=self._place.prefix)
        self._stores.append(store)
        self._brokers.append(broker)
        store.link.clock.skew = self._passed
        await store.open()
        await broker.open()
        return store, Schedules(store, Intake(store, broker), self.clock, [workload])

    async def pass_time(self, duration):
        self.clock.advance(duration)
        self._passed += duration
        for store in self._stores:
            store.link.clock.skew = self._passed

    async def close(self):
        for broker in self._brokers:
            await broker.close()
        for store in self._stores:
            await store.disconnect()


@pytest.fixture(params=["embedded", "cluster"])
async def deployment(request, tmp_path):
    if request.param == "embedded":
        made = Embedded(tmp_path / "holdfast.db")
        yield made
        await made.close()
        return
    mongo, database = request.getfixturevalue("mongo"), request.getfixturevalue("emptied_mongo_database")
    place = RedisPlace(request.getfixturevalue("valkey").url, f"hf{uuid.uuid4().hex[:12]}")
    made = Cluster(mongo.uri, database, place)
    yield made
    await made.close()
    forget(place)


async def test_processes_that_do_their_rounds_at_once_submit_each_tick_once(deployment):
    processes = [await deployment.process(Ticking(every=MINUTE, catch_up="all")) for _ in range(3)]
    store = processes[0][0]
    await asyncio.gather(*(schedules.round() for _, schedules in processes))
    begin = datetime.fromisoformat((await store.get(SCHEDULES, "nightly"))["cursor"])
    for _ in range(10):
        await deployment.pass_time(MINUTE)
        await asyncio.gather(*(schedules.round() for _, schedules in processes))
    cursor = datetime.fromisoformat((await store.get(SCHEDULES, "nightly"))["cursor"])
    expected = Ticking(every=MINUTE).schedule.between(begin, cursor, 100)
    assert len(expected) >= 9
    assert await ticks_of(store) == expected


async def test_processes_that_crash_anywhere_lose_no_tick_and_submit_none_twice(deployment):
    chance, workload = random.Random(7), Ticking(every=MINUTE, catch_up="all")
    store, schedules = await deployment.process(workload)
    await schedules.round()
    begin = datetime.fromisoformat((await store.get(SCHEDULES, "nightly"))["cursor"])
    for _ in range(30):
        await deployment.pass_time(chance.uniform(0.2, 3) * MINUTE)
        doomed = chance.choice(POINTS_OF_SCHEDULES)

        def crash(point, doomed=doomed):
            # Other tests may have left a gateway running in a thread of this process: it lives on.
            if point == doomed and threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt

        arm(crash)
        try:
            await schedules.round()
        except KeyboardInterrupt:
            store, schedules = await deployment.process(workload)
        finally:
            arm(None)
    await schedules.round()
    cursor = datetime.fromisoformat((await store.get(SCHEDULES, "nightly"))["cursor"])
    expected = workload.schedule.between(begin, cursor, 1000)
    assert len(expected) > 20
    assert await ticks_of(store) == expected


async def test_a_pause_holds_in_the_other_process_and_its_ticks_are_skipped(deployment):
    store, schedules = await deployment.process(Ticking(every=MINUTE, catch_up="all"))
    _, other = await deployment.process(Ticking(every=MINUTE, catch_up="all"))
    await schedules.round()
    paused = await other.pause("nightly", actor="ana", reason="The bank is closed.")
    assert (paused.paused, paused.paused_by, paused.reason) == (True, "ana", "The bank is closed.")
    assert paused.paused_at is not None
    for _ in range(5):
        await deployment.pass_time(MINUTE)
        await schedules.round()
    assert await ticks_of(store) == []
    await other.resume("nightly", actor="ana", reason="Open again.")
    resumed = datetime.fromisoformat((await store.get(SCHEDULES, "nightly"))["resumedAt"])
    await deployment.pass_time(MINUTE)
    await schedules.round()
    ticks = await ticks_of(store)
    assert ticks[0] > resumed
    state = await other.state("nightly")
    assert (state.paused, state.last_tick, state.status) == (False, ticks[-1], "received")


async def test_a_run_by_hand_is_a_job_of_its_own(deployment):
    store, schedules = await deployment.process(Ticking(every=MINUTE))
    receipt = await schedules.run("nightly", actor="ana")
    entry = await store.entry("nightly", receipt.key)
    assert entry.status == "received"
    assert isoformat((await schedules.state("nightly")).last_run) in receipt.key
    assert await ticks_of(store) == []


async def test_a_changed_expression_starts_from_now(deployment):
    store, schedules = await deployment.process(Ticking(every=MINUTE, catch_up="all"))
    await schedules.round()
    await deployment.pass_time(10 * MINUTE)
    _, changed = await deployment.process(Ticking(every=2 * SECOND, catch_up="all"))
    await changed.round()
    assert await ticks_of(store) == []
    assert (await store.get(SCHEDULES, "nightly"))["expression"] == "every 2s"
    await deployment.pass_time(10 * SECOND)
    await changed.round()
    assert len(await ticks_of(store)) >= 5  # as much time as the test itself took has passed too


async def test_the_cursor_never_goes_back(deployment):
    store, schedules = await deployment.process(Ticking(every=MINUTE))
    await schedules.round()
    cursor = (await store.get(SCHEDULES, "nightly"))["cursor"]
    older = isoformat(datetime.fromisoformat(cursor) - MINUTE)
    await store.apply([Upsert(SCHEDULES, "nightly", {"cursor": older}, only_if_newer="cursor")])
    assert (await store.get(SCHEDULES, "nightly"))["cursor"] == cursor
