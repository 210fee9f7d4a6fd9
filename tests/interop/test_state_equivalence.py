"""What our broker leaves in Redis is what Node's Worker leaves, key by key and field by field.

The same jobs, added by Node, are worked by Node's Worker, by the stock Python Worker of PyPI's ``bullmq``, and by our
broker; then every key of the three queues is compared. Node is right where the two stock workers differ. What may
differ is in ``_comparable``, each with its reason; everything else must be equal.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import bullmq
import pytest
from redis.asyncio import Redis

from holdfast.brokers.bullmq import BullmqBroker
from holdfast.contracts.queues import QueueJob
from tests.interop.cases import CASES, REASON, RESULT, SNOOZE_MS, Case, Job, handling
from tests.interop.node_queue import NodeQueue
from tests.interop.our_worker import LEASE, SOON, settle, take_now
from tests.interop.redis_state import state_of
from tests.support.waiting import eventually

QUEUE = "jobs"
HOUR_MS = 3_600_000


def _comparable(state: dict[str, Any]) -> dict[str, Any]:
    """Without what may differ."""
    state = dict(sorted(state.items()))
    # The bell that wakes a waiting worker. Whether it is still there depends on whether the worker's last look at the
    # queue came before its last wait or after it. That nobody sleeps through a job is tested elsewhere.
    state.pop("marker", None)
    # The stock workers look for stalled jobs when they start, and leave this so that others need not. Our maintenance
    # looks for them in recover.
    state.pop("stalled-check", None)
    # While jobs are delayed, a worker that asks for its next job in the script that finishes the last one gets the next
    # delay for an answer, and the script ends before it would tell that the queue is drained. A worker that does not
    # ask (Node's when it closes, and we) gets that far.
    if state.get("delayed"):
        state["events"] = [each for each in state["events"] if each["event"] != "drained"]
    return state


@pytest.fixture
async def client(redis_place):
    client = Redis.from_url(redis_place.url, decode_responses=True)
    yield client
    await client.aclose()


# --- working --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", CASES)
async def test_what_we_leave_in_redis_is_what_node_leaves_when_a_job(title, open_queue, client):
    case = CASES[title]

    by_node, by_us, by_python = await asyncio.gather(
        _left(client, open_queue(QUEUE, inside="node"), case, _by_node),
        _left(client, open_queue(QUEUE, inside="ours"), case, _by_us),
        _left(client, open_queue(QUEUE, inside="python"), case, _by_stock_python if case.works_in_python else _by_node),
    )

    assert by_us == by_node
    # The counter of priorities goes with the first look that finds nothing; this worker may be closed before it looks.
    assert {**by_python, "pc": None} == {**by_node, "pc": None}


async def _left(client: Redis, queue: NodeQueue, case: Case, worked: Any) -> dict[str, Any]:
    """The state after a case. A paused queue takes all jobs in before the first is worked."""
    await queue.call("pause")
    jobs = {await queue.add(name, {"n": n}, **opts): Job(name, opts) for n, (name, opts) in enumerate(case.jobs)}
    await queue.call("resume")
    await worked(queue, case, jobs)
    return _comparable(await state_of(client, f"{queue.at['prefix']}:{QUEUE}:"))


async def _over(queue: NodeQueue, case: Case) -> bool:
    counts = await queue.counts()
    ready = counts["waiting"] + counts["prioritized"] + counts["active"]
    return (ready, counts["delayed"]) == (0, case.left_delayed)


async def _by_node(queue: NodeQueue, case: Case, _jobs: dict[str, Job]) -> None:
    worker = await queue.work(concurrency=1)
    await eventually(lambda: _over(queue, case))
    assert await worker.errors() == []
    await worker.rest()


async def _by_us(queue: NodeQueue, case: Case, jobs: dict[str, Job]) -> None:
    broker = BullmqBroker(queue.at["url"], prefix=queue.at["prefix"])
    await broker.open()
    try:
        while not await _over(queue, case):
            for delivery in await broker.take(QUEUE, 1, wait=SOON, lease=LEASE):
                await settle(broker, delivery, handling(jobs[delivery.job_id]))
        assert await take_now(broker, QUEUE) == []  # a worker always looks once more before it waits
    finally:
        await broker.close()


async def _by_stock_python(queue: NodeQueue, case: Case, _jobs: dict[str, Job]) -> None:
    async def handle(job, token):
        match job.name:
            case "hopeless":
                raise bullmq.UnrecoverableError(REASON)
            case "snooze" if job.attemptsStarted == 1:
                await job.moveToDelayed(round(time.time() * 1000) + SNOOZE_MS, token)
                raise bullmq.DelayedError
            case "bad" | "flaky" if job.name == "bad" or job.attemptsMade == 0:
                raise ValueError(REASON)
            case "nothing":
                return None
        return RESULT

    worker = bullmq.Worker(QUEUE, handle, {"connection": queue.at["url"], "prefix": queue.at["prefix"]})
    try:
        await eventually(lambda: _over(queue, case))
    finally:
        await worker.close(force=True)


# --- publishing -----------------------------------------------------------------------------------------------


async def test_what_we_publish_is_what_node_adds(open_queue, redis_place, client):
    theirs = open_queue(QUEUE, inside="node")
    await theirs.add("courier.event", {"n": 1, "of": "Zoë"}, jobId="plain")
    await theirs.add("job", {}, jobId="low", priority=9)
    await theirs.add("job", {}, jobId="high", priority=1)
    await theirs.add("job", {}, jobId="later", delay=HOUR_MS)
    await theirs.add("job", {}, jobId="later-and-high", delay=HOUR_MS, priority=1)
    await theirs.add("job", {"n": 2}, jobId="plain")

    hour = timedelta(hours=1)
    ours = BullmqBroker(redis_place.url, prefix=f"{redis_place.prefix}:ours")
    await ours.publish(QUEUE, [QueueJob("plain", '{"n":1,"of":"Zoë"}', name="courier.event")])
    await ours.publish(QUEUE, [QueueJob("low", "{}", priority=9), QueueJob("high", "{}", priority=1)])
    await ours.publish(QUEUE, [QueueJob("later", "{}", delay=hour)])
    await ours.publish(QUEUE, [QueueJob("later-and-high", "{}", delay=hour, priority=1), QueueJob("plain", '{"n":2}')])
    await ours.close()

    node, us = [_comparable(await state_of(client, f"{redis_place.prefix}:{who}:{QUEUE}:")) for who in ("node", "ours")]
    # Node's Queue signs the queue when it opens it; whoever opens it next may be another version.
    assert node["meta"].pop("version").startswith("bullmq:")
    assert us == node
