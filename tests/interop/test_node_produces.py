"""Node adds jobs, we take and settle them, and Node reads what became of them as if its own worker had done it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from holdfast.contracts.queues import Again, Failed
from tests.interop.our_worker import NOW, fail, finish, settle, take, take_now, take_one, try_again
from tests.support.waiting import eventually

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


async def test_a_finished_job_is_completed_in_node_with_its_return_value(jobs, broker):
    job_id = await jobs.add("greet", {"to": "Zoë", "n": 1})
    waiting = await jobs.waiting_for(job_id)

    delivery = await take_one(broker, "jobs")
    assert (delivery.job_id, json.loads(delivery.data)) == (job_id, {"to": "Zoë", "n": 1})
    assert await jobs.state(job_id) == "active"
    await finish(broker, delivery, '{"said":"olá","times":[1,2]}')

    assert await waiting == {"resolved": {"said": "olá", "times": [1, 2]}}
    job = await jobs.job(job_id)
    assert job["state"] == "completed"
    assert job["returnvalue"] == {"said": "olá", "times": [1, 2]}
    assert (job["attemptsMade"], job["attemptsStarted"], job["stacktrace"]) == (1, 1, [])
    assert job["timestamp"] <= job["processedOn"] <= job["finishedOn"]
    assert "failedReason" not in job
    assert [each["event"] for each in await jobs.heard(job_id, "completed")] == [
        "added",
        "waiting",
        "active",
        "completed",
    ]
    assert await jobs.counts() == _counts(completed=1)


async def test_a_failed_job_is_failed_in_node_with_its_reason(jobs, broker):
    job_id = await jobs.add("greet", {"n": 1})
    waiting = await jobs.waiting_for(job_id)

    await fail(broker, await take_one(broker, "jobs"), "the courier does not exist")

    assert await waiting == {"rejected": "the courier does not exist"}
    job = await jobs.job(job_id)
    assert (job["state"], job["failedReason"], job["attemptsMade"]) == ("failed", "the courier does not exist", 1)
    assert job["processedOn"] <= job["finishedOn"]
    assert len(job["stacktrace"]) == 1
    assert "the courier does not exist" in job["stacktrace"][0]
    assert job["returnvalue"] is None
    told = await jobs.heard(job_id, "retries-exhausted")
    assert [each["event"] for each in told] == ["added", "waiting", "active", "failed", "retries-exhausted"]
    assert told[3]["failedReason"] == "the courier does not exist"
    assert [each["id"] for each in await jobs.call("getFailed")] == [job_id]
    assert await jobs.counts() == _counts(failed=1)


async def test_a_job_to_try_later_is_delayed_in_node_until_its_time(jobs, broker):
    job_id = await jobs.add("greet", attempts=3, backoff={"type": "fixed", "delay": 10})

    await try_again(broker, await take_one(broker, "jobs"), HOUR, "timed out")

    job = await jobs.job(job_id)
    assert (job["state"], job["failedReason"], job["attemptsMade"]) == ("delayed", "timed out", 1)
    assert job["delay"] == HOUR_MS
    assert len(job["stacktrace"]) == 1
    assert "finishedOn" not in job
    assert [each["event"] for each in await jobs.heard(job_id, "delayed")] == ["added", "waiting", "active", "delayed"]
    assert await take_now(broker, "jobs") == []

    await jobs.tell(job_id, "promote")
    again = await take_one(broker, "jobs")
    assert again.job_id == job_id
    await finish(broker, again)

    job = await jobs.job(job_id)
    assert (job["state"], job["attemptsMade"], job["attemptsStarted"]) == ("completed", 2, 2)
    assert job["returnvalue"] == {"ok": True}
    assert len(job["stacktrace"]) == 1


async def test_node_reads_the_tracebacks_of_our_attempts(jobs, broker):
    job_id = await jobs.add("greet", attempts=4)
    trace = 'Traceback (most recent call last):\n  File "orders.py", line 7, in sync\nValueError: no “shop”'
    for after in (NOW, timedelta(milliseconds=1)):
        await settle(broker, await take_one(broker, "jobs"), Again(after, reason="boom", stacktrace=f"{trace} {after}"))
    assert (await jobs.job(job_id))["stacktrace"] == [f"{trace} {NOW}", f"{trace} {timedelta(milliseconds=1)}"]

    await settle(broker, await take_one(broker, "jobs"), Failed("boom", stacktrace=trace))

    job = await jobs.job(job_id)
    assert (job["state"], job["failedReason"]) == ("failed", "boom")
    assert job["stacktrace"] == [f"{trace} {NOW}", f"{trace} {timedelta(milliseconds=1)}", trace]


async def test_node_and_we_add_to_the_same_tracebacks(jobs, broker):
    job_id = await jobs.add("bad", attempts=2)
    await settle(broker, await take_one(broker, "jobs"), Again(reason="boom", stacktrace="ours"))

    worker = await jobs.work()
    await eventually(lambda: has_failed(jobs, job_id))
    await worker.rest()

    ours, theirs = (await jobs.job(job_id))["stacktrace"]
    assert ours == "ours"
    assert theirs.startswith("Error: ")


async def has_failed(jobs, job_id):
    return await jobs.state(job_id) == "failed"


async def test_a_job_to_try_at_once_waits_again_in_node_with_the_attempt_counted(jobs, broker):
    job_id = await jobs.add("greet", attempts=2)

    await try_again(broker, await take_one(broker, "jobs"))

    job = await jobs.job(job_id)
    assert (job["state"], job["attemptsMade"], job["failedReason"]) == ("waiting", 1, "boom")
    waiting = await jobs.waiting_for(job_id)
    await fail(broker, await take_one(broker, "jobs"), "boom again")
    assert await waiting == {"rejected": "boom again"}
    job = await jobs.job(job_id)
    assert (job["state"], job["attemptsMade"], job["failedReason"]) == ("failed", 2, "boom again")
    assert [("boom again" in each) for each in job["stacktrace"]] == [False, True]


async def test_a_job_that_is_only_given_back_costs_no_attempt_in_node(jobs, broker):
    first, second = await jobs.add("greet"), await jobs.add("greet", priority=3)

    for delivery in await take(broker, "jobs", 2):
        await try_again(broker, delivery, reason=None)

    assert [(job["state"], job["attemptsMade"]) for job in [await jobs.job(first), await jobs.job(second)]] == [
        ("waiting", 0),
        ("prioritized", 0),
    ]
    again = await take(broker, "jobs", 2)
    assert [each.job_id for each in again] == [first, second]
    for delivery in again:
        await finish(broker, delivery)
    assert [(await jobs.job(each))["attemptsMade"] for each in (first, second)] == [1, 1]


async def test_a_job_that_node_delayed_comes_when_its_time_has_come(jobs, broker):
    later = await jobs.add("greet", delay=HOUR_MS)
    soon = await jobs.add("greet", delay=80)

    assert await jobs.state(later) == "delayed"
    delivery = await take_one(broker, "jobs")
    assert delivery.job_id == soon
    job = await jobs.job(soon)
    assert job["processedOn"] >= job["timestamp"] + 80
    assert await take_now(broker, "jobs") == []
    assert await jobs.state(later) == "delayed"

    await jobs.tell(later, "promote")
    assert (await take_one(broker, "jobs")).job_id == later


async def test_jobs_that_node_gave_a_priority_come_after_the_others_the_smallest_first(jobs, broker):
    low = await jobs.add("greet", priority=10)
    high = await jobs.add("greet", priority=1)
    high_too = await jobs.add("greet", priority=1)
    plain = await jobs.add("greet")
    assert await jobs.state(low) == "prioritized"

    taken = await take(broker, "jobs", 4)

    assert [each.job_id for each in taken] == [plain, high, high_too, low]
    for delivery in taken:
        await finish(broker, delivery)
    assert (await jobs.counts())["completed"] == 4


async def test_a_prioritised_job_to_try_again_keeps_its_priority(jobs, broker):
    low = await jobs.add("greet", priority=10)
    await try_again(broker, await take_one(broker, "jobs"))
    assert await jobs.state(low) == "prioritized"
    high = await jobs.add("greet", priority=1)

    assert [each.job_id for each in await take(broker, "jobs", 2)] == [high, low]


async def test_ids_that_node_chose_and_bulk_jobs_are_taken_in_their_order(jobs, broker):
    assert await jobs.add("greet", {"n": 0}, jobId="courier-x.evt_1") == "courier-x.evt_1"
    assert await jobs.add("greet", {"n": 99}, jobId="courier-x.evt_1") == "courier-x.evt_1"
    bulk = await jobs.add_bulk(
        [{"name": "greet", "data": {"n": n}, "opts": {"jobId": f"bulk-{n}"} if n % 2 else {}} for n in range(1, 120)],
    )

    taken = await take(broker, "jobs", 120)

    assert [each.job_id for each in taken] == ["courier-x.evt_1", *bulk]
    assert [json.loads(each.data)["n"] for each in taken] == list(range(120))
    for delivery in taken:
        await finish(broker, delivery)
    assert await jobs.counts() == _counts(completed=120)


async def test_a_job_that_node_wants_removed_when_done_is_removed(jobs, broker):
    done = await jobs.add("greet", removeOnComplete=True)
    failed = await jobs.add("greet", removeOnFail=True)

    first, second = await take(broker, "jobs", 2)
    await finish(broker, first)
    await fail(broker, second)

    assert (await jobs.heard(done, "completed"))[-1]["returnvalue"] == {"ok": True}
    assert [each["failedReason"] for each in await jobs.heard(failed, "failed") if "failedReason" in each] == ["boom"]
    assert [await jobs.job(each) for each in (done, failed)] == [None, None]
    assert await jobs.counts() == _counts()


async def test_a_failed_job_that_node_retries_comes_again(jobs, broker):
    job_id = await jobs.add("greet")
    await fail(broker, await take_one(broker, "jobs"))

    await jobs.tell(job_id, "retry", "failed")

    assert await jobs.state(job_id) == "waiting"
    delivery = await take_one(broker, "jobs")
    assert delivery.job_id == job_id
    await finish(broker, delivery)
    job = await jobs.job(job_id)
    assert (job["state"], job["returnvalue"]) == ("completed", {"ok": True})
    assert "failedReason" not in job


async def test_what_node_changed_and_logged_on_a_waiting_job_is_what_we_get(jobs, broker):
    job_id = await jobs.add("greet", {"n": 1}, delay=HOUR_MS)
    await jobs.tell(job_id, "updateData", {"n": 2})
    await jobs.tell(job_id, "changeDelay", 1)
    await jobs.tell(job_id, "log", "looked at")

    delivery = await take_one(broker, "jobs")

    assert json.loads(delivery.data) == {"n": 2}
    await finish(broker, delivery)
    assert (await jobs.call("getJobLogs", job_id))["logs"] == ["looked at"]


async def test_node_can_remove_a_waiting_job_but_not_one_that_we_hold(jobs, broker):
    held = await jobs.add("greet")
    delivery = await take_one(broker, "jobs")
    gone = await jobs.add("greet")

    await jobs.call("remove", gone)
    await jobs.call("drain", True)
    assert await jobs.call("remove", held) == 0

    assert await take_now(broker, "jobs") == []
    await finish(broker, delivery)
    assert await jobs.counts() == _counts(completed=1)


async def test_a_taker_that_waits_is_woken_by_a_job_from_node(jobs, broker):
    """Also by a delayed one that becomes the first, and by a prioritised one."""

    async def woken(**options):
        waiting = asyncio.create_task(take_one(broker, "jobs"))
        await eventually(jobs.has_a_waiting_worker)
        job_id = await jobs.add("greet", **options)
        delivery = await waiting
        assert delivery.job_id == job_id
        await finish(broker, delivery)

    await jobs.add("greet", delay=HOUR_MS)
    await woken()
    await woken(priority=5)
    await woken(delay=30)
    await woken(lifo=True)


async def test_new_data_of_a_job_to_try_again_is_what_node_reads(jobs, broker):
    first, second = await jobs.add("greet", {"attempt": 1}), await jobs.add("greet", {"attempt": 1})
    deliveries = await take(broker, "jobs", 2)

    await settle(broker, deliveries[0], Again(data='{"attempt":2}', reason="boom"))
    await settle(broker, deliveries[1], Again(HOUR, data='{"attempt":2}', reason="boom"))

    assert [(await jobs.job(each))["data"] for each in (first, second)] == [{"attempt": 2}, {"attempt": 2}]
    assert [await jobs.state(each) for each in (first, second)] == ["waiting", "delayed"]


async def test_a_parent_job_of_node_waits_for_the_children_that_we_work(jobs, open_queue, broker):
    parents = open_queue("parents")
    flow = {
        "name": "parent",
        "queueName": "parents",
        "children": [{"name": "child", "queueName": "jobs", "data": {"n": n}} for n in range(2)],
    }
    parent = (await jobs.node("flow", at=parents.at, flow=flow))["job"]["id"]
    assert await parents.state(parent) == "waiting-children"

    for delivery in await take(broker, "jobs", 2):
        assert await take_now(broker, "parents") == []
        await finish(broker, delivery, f'{{"was":{delivery.data}}}')

    assert await parents.state(parent) == "waiting"
    values = await parents.tell(parent, "getChildrenValues")
    assert sorted(each["was"]["n"] for each in values.values()) == [0, 1]
    assert (await take_one(broker, "parents")).job_id == parent


def _counts(**some):
    names = ("active", "completed", "delayed", "failed", "prioritized", "waiting", "waiting-children")
    return dict.fromkeys(names, 0) | some
