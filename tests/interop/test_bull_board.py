"""bull-board, the dashboard of the BullMQ world, over queues of ours: it lists, shows, promotes and retries."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest

from holdfast.contracts.queues import QueueJob
from tests.interop.our_worker import fail, finish, take_one
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)


@pytest.fixture
async def board(jobs, open_queue):
    """Its HTTP API, over two queues of ours."""
    address = await jobs.node("board", at=jobs.at, names=["jobs", "courier-events-main"])
    async with httpx.AsyncClient(base_url=address) as client:
        yield client


async def test_it_lists_our_queues_with_their_counts(board, broker):
    await broker.publish(
        "jobs", [QueueJob("a", "{}"), QueueJob("b", "{}", priority=1), QueueJob("c", "{}", delay=HOUR)]
    )
    await broker.publish("courier-events-main", [QueueJob(f"event-{n}", "{}") for n in range(3)])
    await fail(broker, await take_one(broker, "courier-events-main"))
    await finish(broker, await take_one(broker, "courier-events-main"))
    await broker.pause("courier-events-main")

    listed = await _queues(board)

    assert sorted(listed) == ["courier-events-main", "jobs"]
    assert _some(listed["jobs"]["counts"]) == {"waiting": 1, "prioritized": 1, "delayed": 1}
    assert _some(listed["courier-events-main"]["counts"]) == {"waiting": 1, "failed": 1, "completed": 1}
    assert (listed["jobs"]["isPaused"], listed["courier-events-main"]["isPaused"]) == (False, True)
    page = await board.get("/")
    assert page.status_code == 200
    assert "Bull Dashboard" in page.text


async def test_it_shows_a_job_that_we_wrote_and_settled(board, broker):
    await broker.publish("jobs", [QueueJob("courier-x.evt_1", '{"of":"Zoë"}', name="courier.event")])
    await fail(broker, await take_one(broker, "jobs"), "the courier does not exist")

    answer = await board.get("/api/queues/jobs/courier-x.evt_1")
    shown = answer.json()

    assert (answer.status_code, shown["status"]) == (200, "failed")
    assert (shown["job"]["id"], shown["job"]["name"]) == ("courier-x.evt_1", "courier.event")
    assert shown["job"]["data"] == {"of": "Zoë"}
    assert (shown["job"]["attempts"], shown["job"]["failedReason"]) == (1, "the courier does not exist")
    assert shown["job"]["isFailed"] is True
    (listed,) = (await _queues(board, activeQueue="jobs", status="failed"))["jobs"]["jobs"]
    assert listed["id"] == "courier-x.evt_1"


async def test_a_failed_job_that_it_retries_is_run_by_us_again(board, broker):
    await broker.publish("jobs", [QueueJob("a", "{}")])
    await fail(broker, await take_one(broker, "jobs"))
    waiting = asyncio.create_task(take_one(broker, "jobs"))
    await eventually(lambda: _has_workers(board))

    answer = await board.put("/api/queues/jobs/a/retry")

    assert answer.status_code == 204
    delivery = await waiting
    assert delivery.job_id == "a"
    await finish(broker, delivery)
    shown = (await board.get("/api/queues/jobs/a")).json()
    assert (shown["status"], shown["job"]["returnValue"]) == ("completed", {"ok": True})


async def test_a_delayed_job_that_it_promotes_is_run_by_us_at_once(board, broker):
    await broker.publish("jobs", [QueueJob("a", "{}", delay=HOUR)])

    answer = await board.put("/api/queues/jobs/a/promote")

    assert answer.status_code == 204
    assert (await take_one(broker, "jobs")).job_id == "a"


async def _queues(board, **query):
    answer = await board.get("/api/queues", params={"page": 1, "jobsPerPage": 10} | query)
    assert answer.status_code == 200
    return {each["name"]: each for each in answer.json()["queues"]}


async def _has_workers(board):
    return (await _queues(board))["jobs"]["hasWorkers"]


def _some(counts):
    return {name: count for name, count in counts.items() if count}
