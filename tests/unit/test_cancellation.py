"""Cancellation: a sender takes back what still waits, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Expire, Retry, Upsert
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.engine.cancellation import Cancellation
from tests.support.stage import a_stage, empty
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import Parcels


class Recallable(Parcels):
    def on_transition(self, transition, job):
        recalled = isinstance(transition, Expire) and transition.cancelled
        return [Upsert("parcel_places", job.data.id, {"place": "recalled"})] if recalled else []


def cancel(stage, name="p"):
    return Cancellation(stage.store, stage.broker).cancel(stage.workload, f"parcel.{name}")


async def place(stage):
    return (await stage.store.get("parcel_places", "p"))["place"]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(hours=1)])
async def test_a_job_that_waits_ends_at_once_and_its_readers_hear_of_it(delay):
    async with a_stage(Recallable()) as stage:
        await stage.intake.accept(stage.workload, stage.workload.contract(id="p"), delay=delay)
        assert await cancel(stage) is True
        entry = await stage.entry("p")
        assert (entry.status, entry.note, entry.attempts) == (Status.EXPIRED, "withdrawn", ())
        assert await place(stage) == "recalled"
        assert await empty(stage)
        async with stage.working():
            stage.clock.advance(timedelta(hours=2))
            await stage.maintenance.round()
        assert stage.workload.handled == []


async def test_a_job_between_two_attempts_can_be_cancelled():
    async with a_stage(Recallable(lambda job: Retry("BUSY"))) as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.FAILED)
            assert await cancel(stage) is True
        entry = await stage.entry("p")
        assert (entry.status, entry.note, entry.attempt_count) == (Status.EXPIRED, "withdrawn", 1)


async def test_a_job_in_work_is_left_alone():
    valve = Valve()
    async with a_stage(Recallable(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            assert await cancel(stage) is False
            valve.open.set()
            entry = await stage.until("p", Status.PROCESSED)
        assert entry.note is None
        assert await cancel(stage) is False


async def test_what_nobody_knows_cannot_be_cancelled():
    async with a_stage(Recallable()) as stage:
        assert await cancel(stage) is False


async def test_a_cancellation_that_was_cut_short_is_finished_by_maintenance():
    async with a_stage(Recallable()) as stage:
        await stage.accept("p")
        stage.store.fail("claim", StoreUnavailable())
        with pytest.raises(StoreUnavailable):
            await cancel(stage)
        await stage.maintenance.round()
        entry = await stage.entry("p")
        assert (entry.status, entry.note) == (Status.EXPIRED, "withdrawn")
        assert await place(stage) == "recalled"


async def test_a_worker_finishes_it_too():
    async with a_stage(Recallable()) as stage:
        await stage.accept("p")
        assert await stage.store.cancel("parcels", ["parcel.p"]) == [True]
        async with stage.working():
            entry = await stage.until("p", Status.EXPIRED)
        assert entry.note == "withdrawn"
        assert await place(stage) == "recalled"
        assert stage.workload.handled == []


async def test_a_queue_that_is_away_does_not_keep_a_job_alive():
    async with a_stage(Recallable()) as stage:
        await stage.accept("p")
        stage.broker.fail("remove", BrokerUnavailable())
        assert await cancel(stage) is True
        async with stage.working():
            await eventually(lambda: empty(stage))
        assert stage.workload.handled == []


async def test_without_words_of_its_own_a_cancelled_job_looks_expired():
    async with a_stage() as stage:
        await stage.accept("p")
        assert await cancel(stage) is True
        assert await place(stage) == "lost"
