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
from tests.support.stage import a_stage, empty
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import Parcels


class Recallable(Parcels):
    def on_transition(self, transition, job):
        recalled = isinstance(transition, Expire) and transition.cancelled
        return [Upsert("parcel_places", job.data.id, {"place": "recalled"})] if recalled else []


def cancel(stage, name="p"):
    return Cancellation(stage.store, stage.broker).cancel(stage.workload, f"parcel:{name}")


async def place(stage):
    return (await stage.store.get("parcel_places", "p"))["place"]


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(hours=1)])
async def test_a_job_that_waits_ends_at_once_and_its_readers_hear_of_it(delay):
    async with a_stage(Recallable()) as stage:
        await stage.intake.accept(stage.workload, stage.workload.contract(id="p"), delay=delay)
        assert await cancel(stage) is Cancelled.ENDS
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
            assert await cancel(stage) is Cancelled.ENDS
        entry = await stage.entry("p")
        assert (entry.status, entry.note, entry.attempt_count) == (Status.EXPIRED, "withdrawn", 1)


async def test_a_job_in_work_is_left_alone():
    valve = Valve()
    async with a_stage(Recallable(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            assert await cancel(stage) is Cancelled.TOO_LATE
            valve.open.set()
            entry = await stage.until("p", Status.PROCESSED)
        assert entry.note is None
        assert await cancel(stage) is Cancelled.TOO_LATE


async def test_what_nobody_knows_cannot_be_cancelled():
    async with a_stage(Recallable()) as stage:
        assert await cancel(stage) is Cancelled.TOO_LATE


async def test_a_job_that_has_another_name_in_the_queue_is_cancelled_by_its_key():
    async with a_stage(Recallable()) as stage:
        await adopt(stage.store, stage.workload, [Delivery("parcels-main", "node-7", '{"id": "p"}', "token")])
        assert (await stage.entry("p")).job_id == "node-7"
        assert await cancel(stage) is Cancelled.ENDS
        assert (await stage.entry("p")).status is Status.EXPIRED


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
        assert await stage.store.cancel("parcels", ["parcel.p"]) == [Cancelled.ENDS]
        async with stage.working():
            entry = await stage.until("p", Status.EXPIRED)
        assert entry.note == "withdrawn"
        assert await place(stage) == "recalled"
        assert stage.workload.handled == []


async def test_a_queue_that_is_away_does_not_keep_a_job_alive():
    async with a_stage(Recallable()) as stage:
        await stage.accept("p")
        stage.broker.fail("remove", BrokerUnavailable())
        assert await cancel(stage) is Cancelled.ENDS
        async with stage.working():
            await eventually(lambda: empty(stage))
        assert stage.workload.handled == []


async def test_without_words_of_its_own_a_cancelled_job_looks_expired():
    async with a_stage() as stage:
        await stage.accept("p")
        assert await cancel(stage) is Cancelled.ENDS
        assert await place(stage) == "lost"


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
        ways = {asyncio.ensure_future(self.let_go.wait()), asyncio.ensure_future(context.cancelled(job).wait())}
        _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if context.cancelled(job).is_set():
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
    async with a_stage(Stoppable()) as stage:
        await stage.accept("p")
        await stage.accept("other")
        async with stage.working():
            await eventually(lambda: len(stage.workload.handled) == 2)
            assert await cancel(stage) is Cancelled.STOPS
            entry = await stage.until("p", Status.EXPIRED)
            assert stage.workload.stopped == ["p"]
            assert await stage.status("other") is Status.PROCESSING
            stage.workload.let_go.set()
            assert (await stage.until("other", Status.EXPIRED)).note is None
        assert (entry.note, entry.attempt_count) == ("withdrawn", 1)
        record = await stage.store.get("parcel_places", "p")
        assert (record["asked"], record["place"]) == ("parcel.p", "recalled")
        assert await cancel(stage) is Cancelled.TOO_LATE


async def test_a_look_that_fails_cancels_nothing_and_is_repeated():
    async with a_stage(Stoppable()) as stage:
        stage.store.break_down(RuntimeError("the driver has a bad day"), "asked_to_stop")
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: stage.store.calls["asked_to_stop"] > 1)
            assert await cancel(stage) is Cancelled.STOPS
            assert (await stage.status("p"), stage.workload.stopped) == (Status.PROCESSING, [])
            stage.store.repair()
            await stage.until("p", Status.EXPIRED)


async def test_a_job_that_finishes_first_is_done():
    async def finish(job, context):
        assert await cancel(stage) is Cancelled.STOPS
        return Done()

    async with a_stage(Stoppable(finish)) as stage:
        stage.workload.let_go.set()
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.PROCESSED)
        assert entry.note is None


async def test_a_job_that_fails_first_is_not_tried_again():
    async def fail(job, context):
        assert await cancel(stage) is Cancelled.STOPS
        return Retry("BUSY")

    async with a_stage(Stoppable(fail)) as stage:
        stage.workload.let_go.set()
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.FAILED)
            await stage.maintenance.round()
            entry = await stage.until("p", Status.EXPIRED)
        assert (entry.note, entry.attempt_count, len(stage.workload.handled)) == ("withdrawn", 1, 1)
        assert await place(stage) == "recalled"


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_job_that_was_cancelled_does_not_pass_its_point_of_no_return(monkeypatch, repeatable):
    monkeypatch.setattr("holdfast.engine.execution._LOOK_EVERY", timedelta(hours=1))

    async def proceed(job, context):
        assert await cancel(stage) is Cancelled.STOPS
        await context.proceed(job, repeatable=repeatable)
        return Done()

    async with a_stage(Stoppable(proceed)) as stage:
        stage.workload.let_go.set()
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.EXPIRED)
        assert (entry.note, await place(stage)) == ("withdrawn", "recalled")


async def test_a_job_beyond_its_point_of_no_return_is_not_stopped():
    async def proceed(job, context):
        await context.proceed(job)
        assert await cancel(stage) is Cancelled.TOO_LATE
        return Done()

    async with a_stage(Stoppable(proceed)) as stage:
        stage.workload.let_go.set()
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)


async def test_nobody_looks_where_nothing_can_be_stopped():
    valve = Valve()
    async with a_stage(Recallable(valve)) as stage, a_stage(Stoppable()) as idle:
        await stage.accept("p")
        async with stage.working(), idle.working():
            await eventually(lambda: valve.entered)
            await asyncio.sleep(0.02)
            valve.open.set()
            await stage.until("p", Status.PROCESSED)
        assert stage.store.calls["asked_to_stop"] == idle.store.calls["asked_to_stop"] == 0
