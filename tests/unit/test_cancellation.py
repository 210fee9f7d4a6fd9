"""Cancellation: a sender takes back what still waits, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import AskToStop, Done, Expire, Expired, Retry, Upsert
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Cancelled, Status
from holdfast.contracts.queues import Delivery
from holdfast.engine.adoption import adopt
from holdfast.engine.cancellation import Cancellation
from tests.support.gateway import assembled, empty
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import Parcels


class Recallable(Parcels):
    def on_transition(self, transition, job):
        recalled = isinstance(transition, Expire) and transition.cancelled
        return [Upsert("parcel_places", job.data.id, {"place": "recalled"})] if recalled else []


def cancel(gateway, name="p"):
    return Cancellation(gateway.store, gateway.broker).cancel(gateway.workload, f"parcel:{name}")


async def place(gateway):
    return (await gateway.store.get("parcel_places", "p"))["place"]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(hours=1)])
async def test_a_job_that_waits_ends_at_once_and_its_readers_hear_of_it(delay):
    async with assembled(Recallable()) as gateway:
        await gateway.intake.accept(gateway.workload, gateway.workload.contract(id="p"), delay=delay)
        assert await cancel(gateway) is Cancelled.ENDS
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
            assert await cancel(gateway) is Cancelled.ENDS
        entry = await gateway.entry("p")
        assert (entry.status, entry.note, entry.attempt_count) == (Status.EXPIRED, "withdrawn", 1)


async def test_a_job_in_work_is_left_alone():
    valve = Valve()
    async with assembled(Recallable(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: valve.entered)
            assert await cancel(gateway) is Cancelled.TOO_LATE
            valve.open.set()
            entry = await gateway.until("p", Status.PROCESSED)
        assert entry.note is None
        assert await cancel(gateway) is Cancelled.TOO_LATE


async def test_what_nobody_knows_cannot_be_cancelled():
    async with assembled(Recallable()) as gateway:
        assert await cancel(gateway) is Cancelled.TOO_LATE


async def test_a_job_that_has_another_name_in_the_queue_is_cancelled_by_its_key():
    async with assembled(Recallable()) as gateway:
        await adopt(gateway.store, gateway.workload, [Delivery("parcels-main", "node-7", '{"id": "p"}', "token")])
        assert (await gateway.entry("p")).job_id == "node-7"
        assert await cancel(gateway) is Cancelled.ENDS
        assert (await gateway.entry("p")).status is Status.EXPIRED


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
        assert await gateway.store.cancel("parcels", ["parcel.p"]) == [Cancelled.ENDS]
        async with gateway.working():
            entry = await gateway.until("p", Status.EXPIRED)
        assert entry.note == "withdrawn"
        assert await place(gateway) == "recalled"
        assert gateway.workload.handled == []


async def test_a_queue_that_is_away_does_not_keep_a_job_alive():
    async with assembled(Recallable()) as gateway:
        await gateway.accept("p")
        gateway.broker.fail("remove", BrokerUnavailable())
        assert await cancel(gateway) is Cancelled.ENDS
        async with gateway.working():
            await eventually(lambda: empty(gateway))
        assert gateway.workload.handled == []


async def test_without_words_of_its_own_a_cancelled_job_looks_expired():
    async with assembled() as gateway:
        await gateway.accept("p")
        assert await cancel(gateway) is Cancelled.ENDS
        assert await place(gateway) == "lost"


# --- jobs in work -----------------------------------------------------------------------------------------------------


class Stoppable(Parcels):
    """Each job waits until it is cancelled or let go, and then does what ``then`` says."""

    stoppable = True

    def __init__(self, then=None) -> None:
        super().__init__()
        self.then = then
        self.let_go = asyncio.Event()
        self.stopped: list[str] = []

    async def handle(self, job, context):
        self.handled.append(job)
        ways = {asyncio.ensure_future(self.let_go.wait()), asyncio.ensure_future(context.until_cancelled())}
        _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if context.cancelled:
            self.stopped.append(job.data.id)
        return await self.then(job, context) if self.then else Expired()

    def on_transition(self, transition, job):
        match transition:
            case AskToStop():
                return [Upsert("parcel_places", job.data.id, {"asked": job.job_id})]
            case Expire(cancelled=True):
                return [Upsert("parcel_places", job.data.id, {"place": "recalled"})]
            case _:
                return super().on_transition(transition, job)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._LOOK_EVERY", timedelta(milliseconds=2))


async def test_a_job_in_work_learns_that_it_is_cancelled_and_the_others_go_on():
    async with assembled(Stoppable()) as gateway:
        await gateway.accept("p")
        await gateway.accept("other")
        async with gateway.working():
            await eventually(lambda: len(gateway.workload.handled) == 2)
            assert await cancel(gateway) is Cancelled.STOPS
            entry = await gateway.until("p", Status.EXPIRED)
            assert gateway.workload.stopped == ["p"]
            assert await gateway.status("other") is Status.PROCESSING
            gateway.workload.let_go.set()
            assert (await gateway.until("other", Status.EXPIRED)).note is None
        assert (entry.note, entry.attempt_count) == ("withdrawn", 1)
        record = await gateway.store.get("parcel_places", "p")
        assert (record["asked"], record["place"]) == ("parcel.p", "recalled")
        assert await cancel(gateway) is Cancelled.TOO_LATE


async def test_a_look_that_fails_cancels_nothing_and_is_repeated():
    async with assembled(Stoppable()) as gateway:
        gateway.store.break_down(RuntimeError("the driver has a bad day"), "asked_to_stop")
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: gateway.store.calls["asked_to_stop"] > 1)
            assert await cancel(gateway) is Cancelled.STOPS
            assert (await gateway.status("p"), gateway.workload.stopped) == (Status.PROCESSING, [])
            gateway.store.repair()
            await gateway.until("p", Status.EXPIRED)


async def test_a_job_that_finishes_first_is_done():
    async def finish(job, context):
        assert await cancel(gateway) is Cancelled.STOPS
        return Done()

    async with assembled(Stoppable(finish)) as gateway:
        gateway.workload.let_go.set()
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.PROCESSED)
        assert entry.note is None


async def test_a_job_that_fails_first_is_not_tried_again():
    async def fail(job, context):
        assert await cancel(gateway) is Cancelled.STOPS
        return Retry("BUSY")

    async with assembled(Stoppable(fail)) as gateway:
        gateway.workload.let_go.set()
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
            await gateway.maintenance.round()
            entry = await gateway.until("p", Status.EXPIRED)
        assert (entry.note, entry.attempt_count, len(gateway.workload.handled)) == ("withdrawn", 1, 1)
        assert await place(gateway) == "recalled"


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_job_that_was_cancelled_does_not_pass_its_point_of_no_return(monkeypatch, repeatable):
    monkeypatch.setattr("holdfast.engine.execution._LOOK_EVERY", timedelta(hours=1))

    async def proceed(job, context):
        assert await cancel(gateway) is Cancelled.STOPS
        await context.proceed(repeatable=repeatable)
        return Done()

    async with assembled(Stoppable(proceed)) as gateway:
        gateway.workload.let_go.set()
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.EXPIRED)
        assert (entry.note, await place(gateway)) == ("withdrawn", "recalled")


async def test_a_job_beyond_its_point_of_no_return_is_not_stopped():
    async def proceed(job, context):
        await context.proceed()
        assert await cancel(gateway) is Cancelled.TOO_LATE
        return Done()

    async with assembled(Stoppable(proceed)) as gateway:
        gateway.workload.let_go.set()
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)


async def test_nobody_looks_where_nothing_can_be_stopped():
    valve = Valve()
    async with assembled(Recallable(valve)) as gateway, assembled(Stoppable()) as idle:
        await gateway.accept("p")
        async with gateway.working(), idle.working():
            await eventually(lambda: valve.entered)
            await asyncio.sleep(0.02)
            valve.open.set()
            await gateway.until("p", Status.PROCESSED)
        assert gateway.store.calls["asked_to_stop"] == idle.store.calls["asked_to_stop"] == 0
