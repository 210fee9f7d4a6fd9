"""We publish, and Node's stock Worker does the work."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import redis.asyncio

from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.queues import QueueJob
from tests.interop.our_worker import take_now
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)


async def test_node_works_what_we_publish_with_its_name_data_and_id(jobs, broker):
    data = {"to": "Zoë", "quote": '"\\', "deep": {"n": [1, 2.5, None, True]}, "empty": {}}
    await broker.publish("jobs", [QueueJob("courier-x.evt_1", json.dumps(data), name="courier.event")])
    assert await jobs.state("courier-x.evt_1") == "waiting"
    waiting = await jobs.waiting_for("courier-x.evt_1")

    worker = await jobs.work()

    assert await waiting == {"resolved": {"ok": True}}
    (run,) = await worker.runs()
    assert (run["id"], run["name"], run["data"]) == ("courier-x.evt_1", "courier.event", data)
    assert run["opts"]["jobId"] == "courier-x.evt_1"
    assert (run["attemptsMade"], run["priority"], run["delay"]) == (0, 0, 0)
    job = await jobs.job("courier-x.evt_1")
    assert (job["state"], job["returnvalue"], job["attemptsMade"]) == ("completed", {"ok": True}, 1)
    assert [each["event"] for each in await jobs.heard("courier-x.evt_1", "completed")] == [
        "added",
        "waiting",
        "active",
        "completed",
    ]


async def test_node_sees_the_time_at_which_we_published_on_the_clock_of_redis(jobs, broker, redis_place):
    async with redis.asyncio.Redis.from_url(redis_place.url) as client:
        before = await client.time()
        await broker.publish("jobs", [QueueJob("a", "{}")])
        after = await client.time()

    timestamp = (await jobs.job("a"))["timestamp"]

    assert isinstance(timestamp, int)
    assert _ms(before) <= timestamp <= _ms(after)


def _ms(time: tuple[int, int]) -> int:
    seconds, microseconds = time
    return seconds * 1000 + microseconds // 1000


async def test_a_delayed_job_of_ours_is_delayed_in_node_and_run_when_its_time_has_come(jobs, broker):
    await broker.publish("jobs", [QueueJob("later", "{}", delay=HOUR), QueueJob("soon", "{}", delay=HOUR / 36_000)])
    later = await jobs.job("later")
    assert (later["state"], later["delay"], later["opts"]["delay"]) == ("delayed", 3_600_000, 3_600_000)

    worker = await jobs.work()

    (run,) = await worker.has_run(1)
    assert run["id"] == "soon"
    assert run["at"] >= (await jobs.job("soon"))["timestamp"] + 100
    await jobs.tell("later", "promote")
    assert [each["id"] for each in await worker.has_run(2)] == ["soon", "later"]


async def test_prioritised_jobs_of_ours_are_run_by_node_in_the_right_order(jobs, broker):
    await broker.publish(
        "jobs",
        [
            QueueJob("low", "{}", priority=10),
            QueueJob("high", "{}", priority=1),
            QueueJob("plain", "{}"),
            QueueJob("high-too", "{}", priority=1),
        ],
    )
    low = await jobs.job("low")
    assert (low["state"], low["priority"], low["opts"]["priority"]) == ("prioritized", 10, 10)

    worker = await jobs.work(concurrency=1)

    assert [each["id"] for each in await worker.has_run(4)] == ["plain", "high", "high-too", "low"]


async def test_a_job_of_ours_that_fails_in_node_is_failed_and_a_second_publish_runs_it_again(jobs, broker):
    await broker.publish("jobs", [QueueJob("a", '{"n":1}', name="bad")])
    waiting = await jobs.waiting_for("a")
    worker = await jobs.work()
    assert await waiting == {"rejected": "boom"}
    assert await jobs.state("a") == "failed"

    await broker.publish("jobs", [QueueJob("a", '{"n":2}')])

    runs = await worker.has_run(2)
    assert [(each["id"], each["data"]["n"]) for each in runs] == [("a", 1), ("a", 2)]
    await eventually(lambda: _is(jobs, "a", "completed"))


async def test_an_id_that_waits_in_the_queue_is_not_published_again(jobs, broker):
    await jobs.add("greet", {"n": 1}, jobId="a")
    await broker.publish("jobs", [QueueJob("a", '{"n":2}'), QueueJob("b", '{"n":3}')])
    await jobs.add("greet", {"n": 4}, jobId="b")

    worker = await jobs.work(concurrency=1)

    assert [(each["id"], each["data"]["n"]) for each in await worker.has_run(2)] == [("a", 1), ("b", 3)]
    await eventually(lambda: _is(jobs, "b", "completed"))
    assert len(await worker.runs()) == 2


@pytest.mark.parametrize("job_id", ["", "a:b", "17", "0:1", "wait", "meta"])
async def test_an_id_that_node_would_refuse_or_lose_is_refused(job_id, jobs, broker):
    with pytest.raises((HoldfastError, ValueError)):
        await broker.publish("jobs", [QueueJob(job_id, "{}")])

    assert sum((await jobs.counts()).values()) == 0


async def test_jobs_of_ours_that_node_drains_are_gone(jobs, broker):
    await broker.publish(
        "jobs", [QueueJob("a", "{}"), QueueJob("b", "{}", priority=1), QueueJob("c", "{}", delay=HOUR)]
    )

    await jobs.call("obliterate")

    assert await take_now(broker, "jobs") == []
    depth = await broker.depth("jobs")
    assert (depth.ready, depth.delayed, depth.active) == (0, 0, 0)


async def _is(queue, job_id, state):
    return await queue.state(job_id) == state
