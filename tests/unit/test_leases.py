"""Leases: a job is kept while it is worked on, and given up when it is lost (I4, I6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Retry
from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.queues import QueueJob
from holdfast.telemetry import events
from tests.support.gateway import LEASE, assembled, delayed, empty, outcomes
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, Parcels, deliver

SHORT_LEASE = timedelta(milliseconds=60)


async def _leased_anew(gateway):
    entry = await gateway.entry("p")
    return entry.lease_until == gateway.clock.now() + SHORT_LEASE


async def test_a_long_handler_keeps_its_job():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working(lease=SHORT_LEASE):
            first = await gateway.until("p", Status.PROCESSING)
            for _ in range(5):
                gateway.clock.advance(SHORT_LEASE * 0.9)
                await eventually(lambda: _leased_anew(gateway))
            await eventually(lambda: valve.entered)
            assert await gateway.broker.recover("parcels-main") == 0
            valve.open.set()
            entry = await gateway.until("p", Status.PROCESSED)

        assert (entry.fence, entry.attempt_count, valve.entered) == (first.fence, 1, ["p"])


async def test_a_worker_that_lost_its_job_stops_working_on_it(seen):
    valve, stolen = Valve(), asyncio.Event()

    async def not_before_the_theft(*arguments):
        await stolen.wait()

    async with assembled(Parcels(valve)) as gateway:
        gateway.store.before("renew", not_before_the_theft)
        await gateway.accept("p")
        async with gateway.working(lease=SHORT_LEASE) as execution:
            await eventually(lambda: valve.entered)
            gateway.clock.advance(SHORT_LEASE)
            await gateway.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            stolen.set()
            await eventually(lambda: valve.cancelled == ["p"])
            await eventually(lambda: execution.in_flight == 0)

        entry = await gateway.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
    assert events.ATTEMPT_STALE in [event for event, _ in seen]


async def test_a_result_that_comes_too_late_is_not_written(seen):
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: valve.entered)
            gateway.clock.advance(LEASE)
            await gateway.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            valve.open.set()
            await eventually(lambda: events.ATTEMPT_STALE in [event for event, _ in seen])

        entry = await gateway.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
        assert await gateway.store.get("parcel_places", "p") is None
        # The queue's copy is the other worker's too: it must not be taken from under it.
        assert (await gateway.broker.depth("parcels-main")).active == 1


async def test_a_job_that_kills_every_worker_is_dead_lettered():
    async with assembled() as gateway:
        await gateway.accept("p")
        for _ in range(3):
            await gateway.store.claim("parcels", ["parcel.p"], worker="killed", lease=LEASE, max_attempts=3)
            gateway.clock.advance(LEASE)
        async with gateway.working():
            entry = await gateway.until("p", Status.DEAD_LETTERED)

        assert [attempt.outcome for attempt in entry.attempts] == [AttemptOutcome.LOST] * 3
        (letter,) = await gateway.letters()
        assert (letter.reason_code, letter.attempt_count) == ("WORKER_LOST", 3)
        assert gateway.workload.handled == []


class FewAttempts(Parcels):
    """The policy allows three attempts; parcels for the moon have two."""

    def max_attempts(self, data):
        return 2 if data.place == "moon" else 99


async def test_a_job_with_a_lower_limit_of_its_own_kills_no_more_workers_than_that():
    handled = []
    async with assembled(FewAttempts(lambda job: handled.append(job.data.id) or deliver(job))) as gateway:
        for name, place in (("far", "moon"), ("near", "home")):
            await gateway.accept(name, place=place)
        for _ in range(2):
            ids = ["parcel.far", "parcel.near"]
            await gateway.store.claim("parcels", ids, worker="killed", lease=LEASE, max_attempts=3)
            gateway.clock.advance(LEASE)
        async with gateway.working():
            far = await gateway.until("far", Status.DEAD_LETTERED)
            near = await gateway.until("near", Status.PROCESSED)
            await eventually(lambda: empty(gateway))

        assert outcomes(far) == [("lost", "LOST")] * 2
        assert (far.attempt_count, far.last_error_code) == (2, "WORKER_LOST")
        assert outcomes(near) == [("lost", "LOST")] * 2 + [("succeeded", None)]
        assert handled == ["near"]
        (letter,) = await gateway.letters()
        assert (letter.key, letter.attempt_count, letter.reason_code) == ("parcel:far", 2, "WORKER_LOST")


@pytest.mark.parametrize(("place", "attempts"), [("moon", 2), ("home", 3)])
async def test_a_failing_job_is_tried_as_often_as_its_own_limit_says_and_never_above_the_policys(place, attempts):
    async with assembled(FewAttempts(lambda job: Retry("BUSY"))) as gateway:
        await gateway.accept("p", place=place)
        async with gateway.working():
            for attempt in range(1, attempts):
                await eventually(lambda attempt=attempt: len(gateway.workload.handled) == attempt)
                await gateway.until("p", Status.FAILED)
                gateway.clock.advance(RETRY_AFTER)
            entry = await gateway.until("p", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", "BUSY")] * attempts


async def test_a_limit_that_cannot_be_told_is_the_policys():
    class Confused(Parcels):
        def max_attempts(self, data):
            raise LookupError

    async with assembled(Confused(lambda job: Retry("BUSY") if job.attempt < 3 else deliver(job))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            for attempt in (1, 2):
                await eventually(lambda attempt=attempt: len(gateway.workload.handled) == attempt)
                await gateway.until("p", Status.FAILED)
                gateway.clock.advance(RETRY_AFTER)
            assert (await gateway.until("p", Status.PROCESSED)).attempt_count == 3


async def test_a_job_that_another_worker_holds_is_asked_for_again_later():
    async with assembled() as gateway:
        await gateway.accept("p")
        await gateway.store.claim("parcels", ["parcel.p"], worker="other", lease=LEASE, max_attempts=3)
        async with gateway.working():
            await eventually(lambda: delayed(gateway, 1))
            assert gateway.workload.handled == []
            gateway.clock.advance(LEASE)
            entry = await gateway.until("p", Status.PROCESSED)

        assert [attempt.worker for attempt in entry.attempts] == ["other", "worker-1"]


async def test_a_job_that_is_settled_already_leaves_the_queue():
    async with assembled() as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)
            await gateway.broker.publish("parcels-main", [QueueJob("parcel.p", '{"id": "p"}')])
            await eventually(lambda: empty(gateway))

        assert len(gateway.workload.handled) == 1
