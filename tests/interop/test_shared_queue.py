"""A Node worker and ours on one queue: they share the work, and each heeds what the other decides."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import redis.asyncio

from holdfast.contracts.queues import Acknowledgement, Again, Finished, QueueJob, RateLimit
from tests.interop.our_worker import LEASE, NOW, SOON, finish, settle, take, take_now, take_one
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
SHORTLY = timedelta(milliseconds=30)
JOBS = 4_000


# --- sharing the work -----------------------------------------------------------------------------------------


async def test_a_node_worker_and_ours_do_4000_jobs_once_each(jobs, broker):
    await jobs.call("pause")
    theirs = await jobs.add_bulk([{"name": "ok", "data": {"n": n}} for n in range(JOBS // 2)])
    ours = [QueueJob(f"ours-{n}", json.dumps({"n": n}), name="ok") for n in range(JOBS // 2)]
    await broker.publish("jobs", ours)
    worker = await jobs.work(concurrency=50)
    await jobs.call("resume")

    # The first batch is held until Node has begun, so that both have a share, however fast either is.
    taken = await take(broker, "jobs", 50)
    await worker.has_run(1)
    done = []
    while taken or not await _is_empty(broker):
        done += [each.job_id for each in taken]
        await broker.settle([Acknowledgement(each, Finished()) for each in taken])
        taken = await broker.take("jobs", 50, wait=NOW, lease=LEASE)
    runs = [each["id"] for each in await worker.rest()]

    assert len(done) >= 50
    assert len(runs) >= 1
    assert Counter(done + runs) == Counter([*theirs, *(each.job_id for each in ours)])
    assert (await jobs.counts())["failed"] == 0


WAYS_BACK = (Again(), Again(reason="boom"), Again(SHORTLY), Again(SHORTLY, reason="boom"))
"""Given back or to be tried again, at once or soon."""


async def test_what_we_give_back_is_run_by_a_node_worker_that_waits(jobs, broker):
    held = await _hold_one_for_each_way(broker)
    worker = await jobs.work()

    for number, (delivery, way) in enumerate(held, start=1):
        await eventually(jobs.has_a_waiting_worker)
        await settle(broker, delivery, way)
        assert (await worker.has_run(number))[-1]["id"] == delivery.job_id


async def test_what_we_give_back_rings_the_bell(jobs, broker, redis_place):
    """Node's workers look every few seconds in any case, so that they work is no proof that they were woken."""
    marker = f"{redis_place.prefix}:jobs:marker"
    held = await _hold_one_for_each_way(broker)

    async with redis.asyncio.Redis.from_url(redis_place.url, decode_responses=True) as client:
        for delivery, way in held:
            await client.delete(marker)
            await settle(broker, delivery, way)
            bell = "1" if way.after else "0"
            assert await client.zrange(marker, 0, -1) == [bell], (delivery.job_id, way)
            await jobs.call("remove", delivery.job_id)


async def _hold_one_for_each_way(broker):
    """A job without a priority and one with, in our hands, for each way."""
    held = []
    for number, way in enumerate(WAYS_BACK):
        await broker.publish("jobs", [QueueJob(f"plain-{number}", "{}"), QueueJob(f"high-{number}", "{}", priority=1)])
        held += [(delivery, way) for delivery in await take(broker, "jobs", 2)]
    return held


async def _is_empty(broker) -> bool:
    depth = await broker.depth("jobs")
    return depth.ready == depth.active == 0


# --- pausing --------------------------------------------------------------------------------------------------


async def test_we_take_nothing_from_a_queue_that_node_paused_until_node_resumes_it(jobs, broker):
    await jobs.call("pause")
    plain = await jobs.add("greet")
    urgent = await jobs.add("greet", priority=1)
    await broker.publish("jobs", [QueueJob("ours", "{}")])

    assert (await broker.depth("jobs")).paused
    assert await take_now(broker, "jobs") == []
    waiting = asyncio.create_task(take(broker, "jobs", 3))
    await eventually(jobs.has_a_waiting_worker)
    assert await take_now(broker, "jobs") == []
    await jobs.call("resume")

    assert [each.job_id for each in await waiting] == [plain, "ours", urgent]
    assert not (await broker.depth("jobs")).paused


async def test_node_takes_nothing_from_a_queue_that_we_paused_until_we_resume_it(jobs, open_queue, broker):
    elsewhere = open_queue("elsewhere")
    worker, other_worker = await jobs.work(), await elsewhere.work()
    await broker.pause("jobs")
    assert await jobs.call("isPaused") is True

    job_id = await jobs.add("greet")
    await broker.publish("jobs", [QueueJob("ours", "{}", priority=1)])
    # Node has had its chance: it has run what was added later, elsewhere.
    await elsewhere.add("greet")
    await other_worker.has_run(1)
    assert await worker.runs() == []
    assert [await jobs.state(each) for each in (job_id, "ours")] == ["waiting", "prioritized"]
    await broker.resume("jobs")

    assert [each["id"] for each in await worker.has_run(2)] == [job_id, "ours"]
    assert await jobs.call("isPaused") is False


async def test_we_heed_a_global_concurrency_that_node_set(jobs, broker):
    await jobs.call("setGlobalConcurrency", 2)
    await jobs.add_bulk([{"name": "greet", "data": {}} for _ in range(5)])

    first, second = await take_now(broker, "jobs")

    assert await take_now(broker, "jobs") == []
    await finish(broker, first)
    assert len(await take_now(broker, "jobs")) == 1
    await finish(broker, second)


# --- counting and being seen ----------------------------------------------------------------------------------


async def test_node_counts_what_we_count(jobs, broker):
    await jobs.add_bulk([{"name": "greet", "data": {}} for _ in range(5)])
    await broker.publish("jobs", [QueueJob(f"p{n}", "{}", priority=n) for n in range(1, 4)])
    await broker.publish("jobs", [QueueJob(f"d{n}", "{}", delay=HOUR) for n in range(2)])
    await jobs.add("greet", delay=HOUR_MS)
    held = await take(broker, "jobs", 2)

    await _agree(jobs, broker, ready=6, delayed=3, active=2, paused=False)
    await broker.pause("jobs")
    await _agree(jobs, broker, ready=6, delayed=3, active=2, paused=True)
    await finish(broker, held[0])
    await _agree(jobs, broker, ready=6, delayed=3, active=1, paused=True)


async def _agree(jobs, broker, *, ready, delayed, active, paused):
    counts, depth = await jobs.counts(), await broker.depth("jobs")
    assert (depth.ready, depth.delayed, depth.active, depth.paused) == (ready, delayed, active, paused)
    assert counts["waiting"] + counts["prioritized"] + counts.get("paused", 0) == ready
    assert (counts["delayed"], counts["active"]) == (delayed, active)
    assert await jobs.call("isPaused") is paused


async def test_a_worker_of_ours_that_waits_is_one_of_nodes_workers(jobs, broker):
    assert await jobs.call("getWorkers") == []

    waiting = asyncio.create_task(broker.take("jobs", 1, wait=SOON, lease=LEASE))

    (worker,) = await eventually(jobs.has_a_waiting_worker)
    assert worker["name"] == "jobs"
    assert await jobs.call("getWorkersCount") == 1
    await jobs.add("greet")
    assert len(await waiting) == 1
    await broker.close()
    await eventually(lambda: _nobody_works(jobs))


async def _nobody_works(jobs) -> bool:
    return await jobs.call("getWorkers") == []


# --- one limit for both ---------------------------------------------------------------------------------------


async def test_node_starts_only_what_our_takes_left_of_a_common_rate_limit(jobs, broker):
    ids = await jobs.add_bulk([{"name": "ok", "data": {}} for _ in range(9)])
    rate = RateLimit(5, HOUR)

    taken = await broker.take("jobs", 2, wait=NOW, lease=LEASE, rate=rate)
    worker = await jobs.work(limiter={"max": 5, "duration": HOUR_MS}, maximumRateLimitDelay=20)
    await worker.has_run(3)

    assert await broker.take("jobs", 50, wait=NOW, lease=LEASE, rate=rate) == []
    assert await jobs.call("getRateLimitTtl", 5) > 0
    await eventually(lambda: _waits(jobs, 4))
    for delivery in taken:
        await finish(broker, delivery)
    assert [each["id"] for each in await worker.runs()] == ids[2:5]

    await jobs.call("removeRateLimitKey")  # a new window
    assert [each["id"] for each in await worker.has_run(7)] == ids[2:]


async def test_we_start_only_what_node_left_of_a_common_rate_limit(jobs, broker):
    ids = await jobs.add_bulk([{"name": "ok", "data": {}} for _ in range(3)])
    worker = await jobs.work(limiter={"max": 5, "duration": HOUR_MS})
    await worker.has_run(3)
    await worker.rest()
    ids += await jobs.add_bulk([{"name": "ok", "data": {}} for _ in range(6)])
    rate = RateLimit(5, HOUR)

    taken = await broker.take("jobs", 50, wait=NOW, lease=LEASE, rate=rate)

    assert [each.job_id for each in taken] == ids[3:5]
    assert await broker.take("jobs", 50, wait=NOW, lease=LEASE, rate=rate) == []
    await jobs.call("removeRateLimitKey")
    taken = await broker.take("jobs", 50, wait=NOW, lease=LEASE, rate=rate)
    assert [each.job_id for each in taken] == ids[5:]


async def test_we_heed_a_global_rate_limit_that_node_set(jobs, broker):
    await jobs.call("setGlobalRateLimit", 3, HOUR_MS)
    ids = await jobs.add_bulk([{"name": "ok", "data": {}} for _ in range(5)])

    assert [each.job_id for each in await take_now(broker, "jobs")] == ids[:3]
    assert await take_now(broker, "jobs") == []


async def test_a_taker_that_waits_goes_on_when_the_window_of_the_limit_is_over(jobs, broker):
    ids = await jobs.add_bulk([{"name": "ok", "data": {}} for _ in range(3)])
    rate = RateLimit(1, timedelta(milliseconds=100))

    taken = [each for _ in ids for each in await broker.take("jobs", 50, wait=SOON, lease=LEASE, rate=rate)]

    assert [each.job_id for each in taken] == ids
    started = [(await jobs.job(each))["processedOn"] for each in ids]
    assert all(later - earlier >= 99 for earlier, later in pairwise(started))


async def _waits(jobs, count) -> bool:
    return (await jobs.counts())["waiting"] == count and (await jobs.counts())["completed"] == 3


# --- names ----------------------------------------------------------------------------------------------------


async def test_email_send_is_the_queue_send_inside_the_prefix_email(open_queue, broker):
    send = open_queue("send", inside="email")
    waiting = asyncio.create_task(take_one(broker, "email:send"))
    (worker,) = await eventually(send.has_a_waiting_worker)
    assert worker["name"] == "send"

    job_id = await send.add("email", {"outboxId": "o1"}, jobId="o1")
    delivery = await waiting
    assert (delivery.queue, delivery.job_id) == ("email:send", "o1")
    await finish(broker, delivery, '{"messageId":"m1"}')
    assert (await send.job(job_id))["returnvalue"] == {"messageId": "m1"}

    await broker.publish("email:send", [QueueJob("o2", '{"outboxId":"o2"}', name="email")])
    node_worker = await send.work()
    (run,) = await node_worker.has_run(1)
    assert (run["id"], run["data"]) == ("o2", {"outboxId": "o2"})
    await eventually(lambda: _state_is(send, "o2", "completed"))
    assert (await broker.depth("email:send")).active == 0


async def _state_is(queue, job_id, state) -> bool:
    return await queue.state(job_id) == state
