"""Stopping a worker: jobs finish, or are released at no attempt's cost (I17)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import Retry
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.telemetry import events
from tests.support.gateway import assembled, empty, outcomes
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, BatchedParcels, Parcels, deliver

AT_ONCE = timedelta(0)


async def test_a_stopping_worker_lets_its_jobs_finish():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: valve.entered)
            asyncio.get_running_loop().call_soon(valve.open.set)

        assert outcomes(await gateway.entry("p")) == [("succeeded", None)]


async def test_a_stopping_worker_releases_unfinished_jobs_and_no_attempt_is_spent():
    valve = Valve()
    workload = Parcels(lambda job: valve(job) if job.attempt == 2 or job.data.id == "new" else Retry("BUSY"))
    async with assembled(workload) as gateway:
        await gateway.accept("tried")
        async with gateway.working(drain=AT_ONCE):
            await gateway.until("tried", Status.FAILED)
            await gateway.accept("new")
            gateway.clock.advance(RETRY_AFTER)
            await eventually(lambda: sorted(valve.entered) == ["new", "tried"])

        assert sorted(valve.cancelled) == ["new", "tried"]
        new, tried = await gateway.entry("new"), await gateway.entry("tried")
        assert (new.status, new.attempts) == (Status.RECEIVED, ())
        assert (tried.status, outcomes(tried)) == (Status.FAILED, [("failed", "BUSY")])
        # The next worker gets them at once: no lease has to run out, no time to pass.
        workload.script = deliver
        async with gateway.working():
            await gateway.until("new", Status.PROCESSED)
            entry = await gateway.until("tried", Status.PROCESSED)
        assert outcomes(entry) == [("failed", "BUSY"), ("succeeded", None)]


async def test_what_a_handler_returns_while_it_is_stopped_counts_and_is_not_released_too():
    entered, settling = asyncio.Event(), asyncio.Event()

    async def finishes(job):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(0.1, settling.set)
            return deliver(job)

    async with assembled(Parcels(finishes)) as gateway:
        gateway.store.before("settle", lambda *_: settling.wait())  # the commit takes longer than the last wait
        await gateway.accept("p")
        async with gateway.working(drain=AT_ONCE):
            await entered.wait()

        assert outcomes(await gateway.entry("p")) == [("succeeded", None)]
        assert await empty(gateway)


async def test_a_worker_whose_slots_are_all_taken_can_be_stopped():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        await gateway.accept("waits")
        async with asyncio.timeout(20), gateway.working(concurrency=1, drain=AT_ONCE):
            await eventually(lambda: valve.entered)

        assert [await gateway.status(name) for name in ("p", "waits")] == [Status.RECEIVED] * 2


async def test_a_batch_that_does_not_finish_is_released_whole():
    valve = Valve()

    async def hold(jobs):
        valve.entered.extend(job.data.id for job in jobs)
        await valve.open.wait()

    async with assembled(BatchedParcels(hold)) as gateway:
        await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(3)))
        async with gateway.working(drain=AT_ONCE):
            await eventually(lambda: len(valve.entered) == 3)

        for number in range(3):
            entry = await gateway.entry(f"p{number}")
            assert (entry.status, entry.attempts) == (Status.RECEIVED, ())


async def test_a_handler_that_finishes_while_it_is_being_stopped_has_its_say_once(seen):
    async def finishes_anyway(job):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            return deliver(job)

    entered = asyncio.Event()
    async with assembled(Parcels(finishes_anyway)) as gateway:
        await gateway.accept("p")
        async with gateway.working(drain=AT_ONCE):
            await entered.wait()

        assert outcomes(await gateway.entry("p")) == [("succeeded", None)]
    assert [event for event, _ in seen if event.startswith("attempt.")] == [events.ATTEMPT_SETTLED]


async def test_a_store_that_is_away_does_not_keep_a_worker_from_stopping(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._LAST_WAIT", timedelta(milliseconds=50))
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        async with asyncio.timeout(20), gateway.working(drain=AT_ONCE):
            await eventually(lambda: valve.entered)
            gateway.store.break_down(StoreUnavailable(), "settle")

        gateway.store.repair()
        assert await gateway.status("p") is Status.PROCESSING  # its lease will run out


async def test_a_handler_that_will_not_be_cancelled_does_not_keep_a_worker_from_stopping(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._LAST_WAIT", timedelta(milliseconds=50))
    entered, release = asyncio.Event(), asyncio.Event()

    async def stubborn(_job):
        entered.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Retry("TOO_LATE")

    async with assembled(Parcels(stubborn)) as gateway:
        await gateway.accept("p")
        async with gateway.working(drain=AT_ONCE):
            await eventually(entered.is_set)

        entry = await gateway.entry("p")
        assert (entry.status, entry.attempts) == (Status.RECEIVED, ())
        release.set()
