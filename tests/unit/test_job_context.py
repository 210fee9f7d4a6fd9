"""The context of a job: what it submits, writes and reports, and what the ledger keeps of a failure."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from pydantic import BaseModel

from holdfast import App, Collection, Context, Done, Reject, Retry, Snooze, SyncContext, Upsert
from holdfast.contracts.ledger import Status
from holdfast.contracts.queues import QueueJob
from holdfast.telemetry import events
from tests.support.gateway import assembled, delayed
from tests.support.waiting import eventually
from tests.support.workloads import Parcel, Parcels

app = App()


class Order(BaseModel):
    number: str


@app.job(key="number", collections=(Collection("order_facts", key="number"),))
async def follow_up(order: Order) -> None: ...


def in_context(work):
    """Parcels whose handler gets the context."""

    class Own(Parcels):
        async def handle(self, job, context):
            self.handled.append(job)
            return await work(job, context)

    return Own()


# --- submitting and writing ----------------------------------------------------------------------------------------


async def test_what_a_job_submits_and_writes_is_committed_with_its_end():
    async def work(job, context: Context):
        context.submit(follow_up, Order(number="7"), delay="1h")
        context.write(Upsert("parcel_places", "w", {"place": "written"}))
        assert await gateway.store.entry("follow_up", "7") is None
        return Done()

    async with assembled(in_context(work), others=[follow_up.workload]) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)

        entry = await gateway.store.entry("follow_up", "7")
        assert entry.status is Status.RECEIVED
        assert entry.not_before - entry.first_seen_at == timedelta(hours=1)
        assert entry.labels["traceId"] == "trace-p"
        assert (await gateway.store.get("parcel_places", "w"))["place"] == "written"


@pytest.mark.parametrize("outcome", [Retry("BUSY"), Reject("GONE"), Snooze(timedelta(hours=1))])
async def test_a_job_that_is_not_done_submits_and_writes_nothing(outcome):
    async def work(job, context: Context):
        context.submit(follow_up, Order(number="7"))
        context.write(Upsert("parcel_places", "w", {"place": "written"}))
        return outcome

    async with assembled(in_context(work), others=[follow_up.workload]) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: _settled_once(gateway))

        assert await gateway.store.entry("follow_up", "7") is None
        assert await gateway.store.get("parcel_places", "w") is None


async def _settled_once(gateway):
    entry = await gateway.entry("p")
    return gateway.workload.handled and entry.status is not Status.PROCESSING


async def test_data_of_another_kind_is_not_submitted():
    async def work(job, context: Context):
        with pytest.raises(TypeError, match="follow_up takes Order, not Parcel"):
            context.submit(follow_up, Parcel(id="x"))
        return Done()

    async with assembled(in_context(work), others=[follow_up.workload]) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)


# --- progress ------------------------------------------------------------------------------------------------------


async def test_progress_is_seen_while_the_job_runs_and_the_last_word_stays():
    let_go = asyncio.Event()

    async def work(job, context: Context):
        context.progress(1, 3, "reading")
        await let_go.wait()
        context.progress(3, 3)
        return Done()

    async with assembled(in_context(work)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: _progress(gateway, 1))
            seen = (await gateway.entry("p")).progress
            assert (seen["done"], seen["total"], seen["note"]) == (1, 3, "reading")
            let_go.set()
            entry = await gateway.until("p", Status.PROCESSED)

        assert (entry.progress["done"], entry.progress["note"]) == (3, None)


async def _progress(gateway, done):
    found = (await gateway.entry("p")).progress
    return found is not None and found["done"] == done


# --- failures ------------------------------------------------------------------------------------------------------


def _deep():
    message = "broken with 52998224725"
    raise ValueError(message)


async def test_a_failed_attempt_keeps_where_it_failed(seen):
    async def work(job, context: Context):
        if job.attempt == 1:
            _deep()
        await asyncio.wait_for(asyncio.sleep(1), -1)

    async with assembled(in_context(work)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.FAILED)

        first = entry.attempts[0].traceback.splitlines()
        assert first[0] == "ValueError"
        assert "tests/unit/test_job_context.py" in first[1]
        assert first[1].endswith("in _deep: raise ValueError(message)")
        assert "52998224725" not in entry.attempts[0].traceback
        (line,) = [fields for name, fields in seen if name == events.ATTEMPT_SETTLED]
        assert (line["outcome"], line["error_code"], line["trace_id"]) == ("failed", "UNCLASSIFIED", "trace-p")
        assert line["error_message"].startswith("ValueError: broken")


async def test_a_raised_reject_is_a_reject_with_its_place():
    async def work(job, context: Context):
        raise Reject("GONE", "There is no such parcel.")  # noqa: EM101 - a code

    async with assembled(in_context(work)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.DEAD_LETTERED)

        assert entry.attempts[0].error_code == "GONE"
        assert entry.attempts[0].traceback.startswith("Reject\n")


async def test_a_snoozed_job_is_not_a_failed_job(seen):
    async def work(job, context: Context):
        return Snooze(timedelta(hours=1), "the shop is closed")

    async with assembled(in_context(work)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: any(name == events.ATTEMPT_SETTLED for name, _ in seen))

        assert [fields["outcome"] for name, fields in seen if name == events.ATTEMPT_SETTLED] == ["snoozed"]
        assert (await gateway.entry("p")).note == "the shop is closed"


# --- versions ------------------------------------------------------------------------------------------------------


async def test_a_job_of_a_newer_version_waits_and_says_so():
    class Older(Parcels):
        version = 1

    class Newer(Parcels):
        version = 2
        upcasts = {1: dict}  # noqa: RUF012 - as people write it

    newer = Newer()
    async with assembled(Older()) as gateway:
        await gateway.intake.accept(newer, Parcel(id="p"))
        async with gateway.working():
            await eventually(lambda: _noted(gateway))

        entry = await gateway.entry("p")
        assert entry.status is Status.RECEIVED
        assert entry.attempts == ()
        assert entry.note.startswith("newer_version: The job has payload version 2")
        assert entry.not_before > entry.first_seen_at
        assert gateway.workload.handled == []


async def test_a_job_of_a_newer_version_that_an_external_producer_added_waits_in_the_queue(seen):
    async with assembled() as gateway:
        body = '{"$version":2,"id":"p","size":3}'
        await gateway.broker.publish("parcels-main", [QueueJob("parcel.p", body)])
        async with gateway.working():
            await eventually(lambda: any(name == events.JOB_NEWER for name, _ in seen))
            await eventually(lambda: delayed(gateway, 1))

        assert await gateway.store.entry("parcels", "parcel:p") is None
        assert await gateway.letters() == []
        assert gateway.workload.handled == []


async def _noted(gateway):
    return (await gateway.entry("p")).note is not None


# --- plain functions -----------------------------------------------------------------------------------------------


async def test_a_plain_function_has_the_same_verbs():
    threads = []

    @App().job(key="number")
    def plain(order: Order, ctx: SyncContext) -> str:
        threads.append(threading.current_thread())
        ctx.progress(1, 1)
        ctx.proceed([Upsert("order_facts", "proceeded", {"at": ctx.job.attempt})])
        with ctx.limit("orders", "100/s"):
            found = ctx.get("order_facts", "proceeded")
        ctx.submit(follow_up, Order(number="8"))
        return f"attempt {found['at']} on {ctx.worker}"

    async with assembled(plain.workload, others=[follow_up.workload]) as gateway:
        await gateway.intake.accept(plain.workload, Order(number="7"))
        async with gateway.working():
            await eventually(lambda: _processed(gateway, plain.name))

        entry = await gateway.store.entry(plain.name, "7")
        assert plain.result_of(entry.result) == "attempt 1 on worker-1"
        assert entry.progress["done"] == 1
        assert await gateway.store.entry("follow_up", "8") is not None
        assert threads[0] is not threading.main_thread()


async def _processed(gateway, workload):
    entry = await gateway.store.entry(workload, "7")
    return entry is not None and entry.status is Status.PROCESSED
