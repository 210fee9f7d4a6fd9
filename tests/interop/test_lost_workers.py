"""Workers that are lost: Node's stall check and our recovery bring each other's jobs back, and no others."""

from __future__ import annotations

from datetime import timedelta

from tests.interop.our_worker import fail, finish, take_now, take_one
from tests.support.waiting import eventually

BLINK = timedelta(milliseconds=150)
"""A lease that nobody renews: short, so that it runs out soon."""
BLINK_MS = 150


async def test_a_job_whose_node_worker_was_killed_is_recovered_and_run_by_us(jobs, broker, another_node):
    doomed_node = another_node()
    doomed = await jobs.seen_by(doomed_node).work(lockDuration=BLINK_MS)
    job_id = await jobs.add("hang", {"n": 1})
    await doomed.has_run(1)
    doomed_node.kill()

    assert await eventually(lambda: broker.recover("jobs")) == 1

    # How often a job may lose its worker is the ledger's to count: Node must not be told to give up on it.
    assert "deferredFailure" not in await jobs.job(job_id)
    delivery = await take_one(broker, "jobs")
    assert delivery.job_id == job_id
    await finish(broker, delivery)
    job = await jobs.job(job_id)
    assert (job["state"], job["returnvalue"], job["stalledCounter"]) == ("completed", {"ok": True}, 1)
    assert [each["event"] for each in await jobs.heard(job_id, "completed")] == [
        *("added", "waiting", "active"),
        *("waiting", "stalled", "active", "completed"),
    ]


async def test_our_recovery_leaves_jobs_of_a_living_node_worker_alone(jobs, broker, another_node):
    busy = await jobs.seen_by(another_node()).work(concurrency=2)
    kept = [await jobs.add("hang"), await jobs.add("hang")]
    await busy.has_run(2)
    lost = await jobs.add("ok")
    assert (await take_one(broker, "jobs", lease=BLINK)).job_id == lost

    assert await eventually(lambda: broker.recover("jobs")) == 1

    assert [await jobs.state(each) for each in (*kept, lost)] == ["active", "active", "waiting"]
    assert await broker.recover("jobs") == 0


async def test_a_job_whose_lease_with_us_ran_out_is_recovered_and_run_by_node(jobs, broker):
    job_id = await jobs.add("ok")
    delivery = await take_one(broker, "jobs", lease=BLINK)

    worker = await jobs.work(stalledInterval=50)

    (run,) = await worker.has_run(1)
    assert (run["id"], run["stalledCounter"]) == (job_id, 1)
    await eventually(lambda: _state_is(jobs, job_id, "completed"))
    # We come too late, and change nothing.
    assert await broker.renew([delivery], BLINK) == [delivery]
    await fail(broker, delivery, "too late")
    job = await jobs.job(job_id)
    assert (job["state"], job["returnvalue"], job["attemptsMade"]) == ("completed", {"ok": True}, 1)
    assert "failedReason" not in job


async def test_nodes_stall_check_leaves_jobs_that_we_hold_alone(jobs, broker):
    held_id, lost_id = await jobs.add("ok"), await jobs.add("ok")
    held = await take_one(broker, "jobs")
    await take_one(broker, "jobs", lease=BLINK)

    worker = await jobs.work(stalledInterval=50)

    # The check has brought back the one that was lost, so it has looked at both.
    assert [each["id"] for each in await worker.has_run(1)] == [lost_id]
    await eventually(lambda: _state_is(jobs, lost_id, "completed"))
    assert await jobs.state(held_id) == "active"
    assert await broker.renew([held], timedelta(seconds=30)) == []
    await finish(broker, held)
    assert (await jobs.job(held_id))["stalledCounter"] == 0
    assert len(await worker.runs()) == 1


async def test_a_late_node_worker_changes_nothing_about_a_job_that_we_took_over(jobs, broker, another_node):
    """Node's worker froze past its lock (SIGSTOP), we recovered its job, and then it wakes up."""
    frozen_node = another_node()
    frozen = await jobs.seen_by(frozen_node).work(lockDuration=BLINK_MS)
    job_id = await jobs.add("held")
    await frozen.has_run(1)
    frozen_node.freeze()

    assert await eventually(lambda: broker.recover("jobs")) == 1
    delivery = await take_one(broker, "jobs")
    frozen_node.thaw()
    await frozen.release()
    await eventually(lambda: _complains(frozen, "Lock mismatch"))

    assert await jobs.state(job_id) == "active"
    await finish(broker, delivery)
    job = await jobs.job(job_id)
    assert (job["state"], job["returnvalue"], job["attemptsMade"]) == ("completed", {"ok": True}, 1)


async def test_a_job_that_node_gave_up_on_after_many_stalls_is_still_ours_to_settle(jobs, broker):
    """Node marks a job that stalled too often, to be failed when next taken. Our ledger counts lost workers itself."""
    job_id = await jobs.add("ok")
    await take_one(broker, "jobs", lease=BLINK)
    idle = await jobs.work(stalledInterval=50, maxStalledCount=0, autorun=False)
    await idle.check_stalls()
    await eventually(lambda: _state_is(jobs, job_id, "waiting"))
    assert (await jobs.job(job_id))["deferredFailure"] == "job stalled more than allowable limit"

    await finish(broker, await take_one(broker, "jobs"))

    job = await jobs.job(job_id)
    assert (job["state"], job["returnvalue"]) == ("completed", {"ok": True})
    assert await take_now(broker, "jobs") == []


async def _state_is(queue, job_id, state) -> bool:
    return await queue.state(job_id) == state


async def _complains(worker, of) -> bool:
    return any(of in each for each in await worker.errors())
