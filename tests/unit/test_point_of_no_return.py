"""What cannot be undone happens at most once (I11): proceed, and everything that can go wrong beyond it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Done, Halt, MoveToDeadLetters, Reason, Release, Retry, RetryLater, Upsert
from holdfast.contracts.errors import DeadlinePassed, LeaseLost, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.telemetry import events
from tests.support.gateway import LEASE, assembled, outcomes
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, Parcels


class Rockets(Parcels):
    """Each job lights one rocket, which comes down only when the test lets it."""

    def __init__(self, then=None, *, repeatable=False):
        super().__init__()
        self.lit: list[str] = []
        self.refused: list[type[Exception]] = []
        self.then = then or self._landed
        self.repeatable = repeatable
        self.ready = asyncio.Event()
        self.ready.set()

    async def handle(self, job, context):
        self.handled.append(job)
        await self.ready.wait()
        rising = Upsert("parcel_places", job.data.id, {"place": "rising"})
        try:
            await context.proceed([rising], repeatable=self.repeatable)
        except (DeadlinePassed, LeaseLost) as error:
            self.refused.append(type(error))
            raise
        self.lit.append(job.data.id)
        return await self.then(job)

    async def _landed(self, job):
        return Done([Upsert("parcel_places", job.data.id, {"place": "landed"})])

    def interrupted(self, attempts):
        return Reason("ROCKET_LOST", f"Nobody saw rocket {attempts} come down.")

    def on_transition(self, transition, job):
        match transition:
            case RetryLater():
                place = f"retry {job.attempt} of {job.generation}"
            case Release():
                place = f"back {job.attempt}"
            case MoveToDeadLetters(reason_code=place):
                pass
            case _:
                return super().on_transition(transition, job)
        return [Upsert("parcel_places", job.data.id, {"place": place})]


async def place(gateway, name):
    return (await gateway.store.get("parcel_places", name) or {}).get("place")


async def test_what_the_handler_returns_beyond_the_point_counts():
    async with assembled(Rockets()) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.PROCESSED)
        assert outcomes(entry) == [("succeeded", None)]
        assert await place(gateway, "p") == "landed"
        assert gateway.workload.lit == ["p"]


async def test_the_effects_are_there_before_the_handler_goes_on():
    seen = []

    async def look(job):
        seen.append(await place(gateway, job.data.id))
        return Done()

    async with assembled(Rockets(look)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)
    assert seen == ["rising"]


async def test_a_failure_that_the_handler_reports_is_retried_as_ever():
    async def dud(job):
        return Retry("DUD", "It never left.") if job.attempt == 1 else Done()

    async with assembled(Rockets(dud)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
            assert await place(gateway, "p") == "retry 1 of 1"
            gateway.clock.advance(RETRY_AFTER)
            entry = await gateway.until("p", Status.PROCESSED)
        assert outcomes(entry) == [("failed", "DUD"), ("succeeded", None)]


async def _raise(job):
    message = "the sky is full of smoke"
    raise RuntimeError(message)


async def _hang(job):
    await asyncio.Event().wait()


async def _cancel_itself(job):
    raise asyncio.CancelledError


@pytest.mark.parametrize("trouble", [_raise, _hang, _cancel_itself])
async def test_no_surprise_beyond_the_point_lights_another_rocket(trouble):
    workload = Rockets(trouble)
    workload.timeout = timedelta(milliseconds=200)
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.DEAD_LETTERED)
            gateway.clock.advance(timedelta(hours=1))
        (letter,) = await gateway.letters()
        assert letter.reason_code == "ROCKET_LOST"
        assert outcomes(entry) == [("failed", "ROCKET_LOST")]
        assert await place(gateway, "p") == "ROCKET_LOST"
        assert workload.lit == ["p"]


async def test_with_a_repeatable_step_a_surprise_is_retried():
    async def once(job):
        return await _raise(job) if job.attempt == 1 else Done()

    async with assembled(Rockets(once, repeatable=True)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
            gateway.clock.advance(RETRY_AFTER)
            await gateway.until("p", Status.PROCESSED)
        assert gateway.workload.lit == ["p", "p"]


async def _vanish(gateway, execution):
    """The worker is gone without a word: nothing of it is settled, and its lease runs out."""
    gateway.store.break_down(StoreUnavailable(), "settle", "renew")
    execution.cancel()
    await asyncio.gather(execution, return_exceptions=True)
    gateway.store.repair()
    gateway.clock.advance(LEASE + timedelta(seconds=1))


async def test_a_rocket_whose_worker_vanished_is_not_lit_again():
    workload = Rockets(_hang)
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        running = asyncio.create_task(gateway.execution().run(asyncio.Event(), timedelta(0)))
        await eventually(lambda: workload.lit)
        await _vanish(gateway, running)

        async with gateway.working():
            await gateway.broker.recover("parcels-main")
            entry = await gateway.until("p", Status.DEAD_LETTERED)
        (letter,) = await gateway.letters()
        assert (letter.reason_code, letter.attempt_count) == ("ROCKET_LOST", 1)
        assert outcomes(entry) == [("lost", "LOST")]
        assert await place(gateway, "p") == "ROCKET_LOST"
        assert workload.lit == ["p"]


async def test_a_worker_that_vanished_before_the_point_costs_an_attempt_and_no_more():
    workload = Rockets()
    workload.ready.clear()
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        running = asyncio.create_task(gateway.execution().run(asyncio.Event(), timedelta(0)))
        await eventually(lambda: workload.handled)
        await _vanish(gateway, running)
        workload.ready.set()

        async with gateway.working():
            await gateway.broker.recover("parcels-main")
            entry = await gateway.until("p", Status.PROCESSED)
        assert outcomes(entry) == [("lost", "LOST"), ("succeeded", None)]
        assert workload.lit == ["p"]


async def test_a_person_may_light_it_again():
    async def first_time(job):
        return await _raise(job) if job.generation == 1 else Done()

    async with assembled(Rockets(first_time)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
            (letter,) = await gateway.letters()
            await gateway.review.review(letter.id, actor="ana", reason="saw it fall into the sea")
            await gateway.review.replay(letter.id, actor="ana", reason="light another")
            await gateway.until("p", Status.PROCESSED)
        assert gateway.workload.lit == ["p", "p"]


async def test_a_worker_that_is_stopped_does_not_release_what_may_have_happened():
    workload = Rockets(_hang)
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working(drain=timedelta(0)):
            await eventually(lambda: workload.lit)
        entry = await gateway.entry("p")
        assert entry.status is Status.DEAD_LETTERED
        assert outcomes(entry) == [("failed", "ROCKET_LOST")]


async def test_a_worker_that_is_stopped_releases_jobs_that_have_not_begun():
    workload = Rockets()
    workload.ready.clear()
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working(drain=timedelta(0)):
            await eventually(lambda: workload.handled)
        entry = await gateway.entry("p")
        assert (entry.status, outcomes(entry)) == (Status.RECEIVED, [])
        assert await place(gateway, "p") == "back 1"


async def test_a_job_that_another_worker_has_by_now_goes_no_further():
    workload = Rockets()
    workload.ready.clear()
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: workload.handled)
            gateway.clock.advance(LEASE + timedelta(seconds=1))
            await gateway.store.claim("parcels", ["parcel.p"], worker="other", lease=LEASE, max_attempts=3)
            workload.ready.set()
            await eventually(lambda: workload.refused)
        assert workload.refused == [LeaseLost]
        assert workload.lit == []
        assert await place(gateway, "p") is None


async def test_an_expired_job_goes_no_further():
    workload = Rockets()
    workload.ttl = timedelta(minutes=1)
    workload.ready.clear()
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working(lease=timedelta(hours=1)):
            await eventually(lambda: workload.handled)
            gateway.clock.advance(timedelta(minutes=1))
            workload.ready.set()
            await gateway.until("p", Status.EXPIRED)
        assert workload.refused == [DeadlinePassed]
        assert workload.lit == []
        assert await place(gateway, "p") == "lost"


async def test_jobs_that_come_to_the_point_together_share_a_commit():
    workload = Rockets(_hang)
    workload.ready.clear()
    async with assembled(workload) as gateway:
        for number in range(10):
            await gateway.accept(f"p{number}")
        async with gateway.working(drain=timedelta(0)):
            await eventually(lambda: len(workload.handled) == 10)
            before = gateway.store.calls["settle"]
            workload.ready.set()
            await eventually(lambda: len(workload.lit) == 10)
            # The first does not wait for the others; whatever came while its commit was under way shares the next.
            assert gateway.store.calls["settle"] - before <= 2


async def test_a_store_that_is_away_at_the_point_costs_no_attempt():
    async with assembled(Rockets()) as gateway:
        await gateway.accept("p")
        gateway.store.fail("settle", StoreUnavailable("away"))
        async with gateway.working():
            await eventually(lambda: gateway.workload.handled)
            await eventually(lambda: _waits(gateway))
            gateway.clock.advance(timedelta(seconds=2))
            entry = await gateway.until("p", Status.PROCESSED)
        assert outcomes(entry) == [("succeeded", None)]
        assert gateway.workload.lit == ["p"]


async def _waits(gateway):
    return (await gateway.broker.depth("parcels-main")).delayed == 1


async def test_a_halt_pauses_the_queue_says_why_and_costs_no_attempt(seen):
    async def blocked(job):
        return Halt("ACCOUNT", "The account is closed.") if len(gateway.workload.lit) == 1 else Done()

    async with assembled(Rockets(blocked)) as gateway:
        await gateway.accept("p")
        await gateway.accept("q")
        async with gateway.working(concurrency=1):
            depth = await eventually(lambda: _paused(gateway))
            assert depth.paused_because == "ACCOUNT: The account is closed."
            entry = await gateway.until("p", Status.RECEIVED)
            assert outcomes(entry) == []
            assert await place(gateway, "p") == "back 1"
            await gateway.broker.resume("parcels-main")
            await gateway.until("p", Status.PROCESSED)
            await gateway.until("q", Status.PROCESSED)
            assert (await gateway.broker.depth("parcels-main")).paused_because is None
    (told,) = [fields for event, fields in seen if event == events.QUEUE_HALTED]
    assert (told["queue"], told["reason"]) == ("parcels-main", "ACCOUNT: The account is closed.")


async def _paused(gateway):
    depth = await gateway.broker.depth("parcels-main")
    return depth if depth.paused else None
