"""Cancellation: a sender takes back what still waits, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Retry, Upsert
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.engine.cancellation import Cancellation
from tests.support.gateway import assembled, empty
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import Parcels


class Recallable(Parcels):
    def cancelled(self, data):
        return [Upsert("parcel_places", data.id, {"place": "recalled"})]


def cancel(gateway, name="p"):
    return Cancellation(gateway.store, gateway.broker).cancel(gateway.workload, f"parcel.{name}")


async def place(gateway):
    return (await gateway.store.get("parcel_places", "p"))["place"]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(hours=1)])
async def test_a_job_that_waits_ends_at_once_and_its_readers_hear_of_it(delay):
    async with assembled(Recallable()) as gateway:
        await gateway.intake.accept(gateway.workload, gateway.workload.contract(id="p"), delay=delay)
        assert await cancel(gateway) is True
        entry = await gateway.entry("p")
        assert (entry.status, entry.note, entry.attempts) == (Status.EXPIRED, "withdrawn", ())
        assert await place(gateway) == "recalled"
        assert await empty(gateway)
        async with gateway.working():
            gateway.clock.advance(timedelta(hours=2))
            await gateway.maintenance.round()
        assert gateway.workload.handled == []


async def test_a_job_between_two_attempts_can_be_cancelled():
    async with assembled(Recallable(lambda job: Retry("BUSY"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
            assert await cancel(gateway) is True
        entry = await gateway.entry("p")
        assert (entry.status, entry.note, entry.attempt_count) == (Status.EXPIRED, "withdrawn", 1)


async def test_a_job_in_work_is_left_alone():
    valve = Valve()
    async with assembled(Recallable(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: valve.entered)
            assert await cancel(gateway) is False
            valve.open.set()
            entry = await gateway.until("p", Status.PROCESSED)
        assert entry.note is None
        assert await cancel(gateway) is False


async def test_what_nobody_knows_cannot_be_cancelled():
    async with assembled(Recallable()) as gateway:
        assert await cancel(gateway) is False


async def test_a_cancellation_that_was_cut_short_is_finished_by_maintenance():
    async with assembled(Recallable()) as gateway:
        await gateway.accept("p")
        gateway.store.fail("claim", StoreUnavailable())
        with pytest.raises(StoreUnavailable):
            await cancel(gateway)
        await gateway.maintenance.round()
        entry = await gateway.entry("p")
        assert (entry.status, entry.note) == (Status.EXPIRED, "withdrawn")
        assert await place(gateway) == "recalled"


async def test_a_worker_finishes_it_too():
    async with assembled(Recallable()) as gateway:
        await gateway.accept("p")
        assert await gateway.store.cancel("parcels", ["parcel.p"]) == [True]
        async with gateway.working():
            entry = await gateway.until("p", Status.EXPIRED)
        assert entry.note == "withdrawn"
        assert await place(gateway) == "recalled"
        assert gateway.workload.handled == []


async def test_a_queue_that_is_away_does_not_keep_a_job_alive():
    async with assembled(Recallable()) as gateway:
        await gateway.accept("p")
        gateway.broker.fail("remove", BrokerUnavailable())
        assert await cancel(gateway) is True
        async with gateway.working():
            await eventually(lambda: empty(gateway))
        assert gateway.workload.handled == []


async def test_without_words_of_its_own_a_cancelled_job_looks_expired():
    async with assembled() as gateway:
        await gateway.accept("p")
        assert await cancel(gateway) is True
        assert await place(gateway) == "lost"
