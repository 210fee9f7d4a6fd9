"""Leases: a job is kept while it is worked on, and given up when it is lost (I4, I6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Retry
from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.queues import QueueJob
from holdfast.telemetry import events
from tests.support.stage import LEASE, a_stage, delayed, empty, outcomes
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, Parcels, deliver

SHORT_LEASE = timedelta(milliseconds=60)


async def _leased_anew(stage):
    entry = await stage.entry("p")
    return entry.lease_until == stage.clock.now() + SHORT_LEASE


async def test_a_long_handler_keeps_its_job():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working(lease=SHORT_LEASE):
            first = await stage.until("p", Status.PROCESSING)
            for _ in range(5):
                stage.clock.advance(SHORT_LEASE * 0.9)
                await eventually(lambda: _leased_anew(stage))
            await eventually(lambda: valve.entered)
            assert await stage.broker.recover("parcels-main") == 0
            valve.open.set()
            entry = await stage.until("p", Status.PROCESSED)

        assert (entry.fence, entry.attempt_count, valve.entered) == (first.fence, 1, ["p"])


async def test_a_worker_that_lost_its_job_stops_working_on_it(seen):
    valve, stolen = Valve(), asyncio.Event()

    async def not_before_the_theft(*arguments):
        await stolen.wait()

    async with a_stage(Parcels(valve)) as stage:
        stage.store.before("renew", not_before_the_theft)
        await stage.accept("p")
        async with stage.working(lease=SHORT_LEASE) as execution:
            await eventually(lambda: valve.entered)
            stage.clock.advance(SHORT_LEASE)
            await stage.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            stolen.set()
            await eventually(lambda: valve.cancelled == ["p"])
            await eventually(lambda: execution.in_flight == 0)

        entry = await stage.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
    assert events.ATTEMPT_STALE in [event for event, _ in seen]


async def test_a_result_that_comes_too_late_is_not_written(seen):
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            stage.clock.advance(LEASE)
            await stage.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            valve.open.set()
            await eventually(lambda: events.ATTEMPT_STALE in [event for event, _ in seen])

        entry = await stage.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
        assert await stage.store.get("parcel_places", "p") is None
        # The queue's copy is the other worker's too: it must not be taken from under it.
        assert (await stage.broker.depth("parcels-main")).active == 1


async def test_a_job_that_kills_every_worker_is_dead_lettered():
    async with a_stage() as stage:
        await stage.accept("p")
        for _ in range(3):
            await stage.store.claim("parcels", ["parcel.p"], worker="killed", lease=LEASE, max_attempts=3)
            stage.clock.advance(LEASE)
        async with stage.working():
            entry = await stage.until("p", Status.DEAD_LETTERED)

        assert [attempt.outcome for attempt in entry.attempts] == [AttemptOutcome.LOST] * 3
        (letter,) = await stage.letters()
        assert (letter.reason_code, letter.attempt_count) == ("WORKER_LOST", 3)
        assert stage.workload.handled == []


class FewAttempts(Parcels):
    """The policy allows three attempts; parcels for the moon have two."""

    def max_attempts(self, data):
        return 2 if data.place == "moon" else 99


async def test_a_job_with_a_lower_limit_of_its_own_kills_no_more_workers_than_that():
    handled = []
    async with a_stage(FewAttempts(lambda job: handled.append(job.data.id) or deliver(job))) as stage:
        for name, place in (("far", "moon"), ("near", "home")):
            await stage.accept(name, place=place)
        for _ in range(2):
            ids = ["parcel.far", "parcel.near"]
            await stage.store.claim("parcels", ids, worker="killed", lease=LEASE, max_attempts=3)
            stage.clock.advance(LEASE)
        async with stage.working():
            far = await stage.until("far", Status.DEAD_LETTERED)
            near = await stage.until("near", Status.PROCESSED)
            await eventually(lambda: empty(stage))

        assert outcomes(far) == [("lost", "LOST")] * 2
        assert (far.attempt_count, far.last_error_code) == (2, "WORKER_LOST")
        assert outcomes(near) == [("lost", "LOST")] * 2 + [("succeeded", None)]
        assert handled == ["near"]
        (letter,) = await stage.letters()
        assert (letter.key, letter.attempt_count, letter.reason_code) == ("parcel:far", 2, "WORKER_LOST")


@pytest.mark.parametrize(("place", "attempts"), [("moon", 2), ("home", 3)])
async def test_a_failing_job_is_tried_as_often_as_its_own_limit_says_and_never_above_the_policys(place, attempts):
    async with a_stage(FewAttempts(lambda job: Retry("BUSY"))) as stage:
        await stage.accept("p", place=place)
        async with stage.working():
            for attempt in range(1, attempts):
                await eventually(lambda attempt=attempt: len(stage.workload.handled) == attempt)
                await stage.until("p", Status.FAILED)
                stage.clock.advance(RETRY_AFTER)
            entry = await stage.until("p", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", "BUSY")] * attempts


async def test_a_limit_that_cannot_be_told_is_the_policys():
    class Confused(Parcels):
        def max_attempts(self, data):
            raise LookupError

    async with a_stage(Confused(lambda job: Retry("BUSY") if job.attempt < 3 else deliver(job))) as stage:
        await stage.accept("p")
        async with stage.working():
            for attempt in (1, 2):
                await eventually(lambda attempt=attempt: len(stage.workload.handled) == attempt)
                await stage.until("p", Status.FAILED)
                stage.clock.advance(RETRY_AFTER)
            assert (await stage.until("p", Status.PROCESSED)).attempt_count == 3


async def test_a_job_that_another_worker_holds_is_asked_for_again_later():
    async with a_stage() as stage:
        await stage.accept("p")
        await stage.store.claim("parcels", ["parcel.p"], worker="other", lease=LEASE, max_attempts=3)
        async with stage.working():
            await eventually(lambda: delayed(stage, 1))
            assert stage.workload.handled == []
            stage.clock.advance(LEASE)
            entry = await stage.until("p", Status.PROCESSED)

        assert [attempt.worker for attempt in entry.attempts] == ["other", "worker-1"]


async def test_a_job_that_is_settled_already_leaves_the_queue():
    async with a_stage() as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)
            await stage.broker.publish("parcels-main", [QueueJob("parcel.p", '{"id": "p"}')])
            await eventually(lambda: empty(stage))

        assert len(stage.workload.handled) == 1
