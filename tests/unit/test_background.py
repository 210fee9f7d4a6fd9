"""What a workload may do beside its jobs: take in jobs of its own finding, and bring dead letters elsewhere too."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from unittest.mock import patch

import pytest

from holdfast import Reject
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.engine.execution import ExecutionOptions
from holdfast.telemetry import events
from holdfast.worker import Worker, run_repeatedly
from tests.support.gateway import GRACE, assembled
from tests.support.waiting import eventually
from tests.support.workloads import Parcel, Parcels


class Finder(Parcels):
    """Finds jobs somewhere: what ``found`` holds is taken in, a batch at a time. An exception in it is raised."""

    def __init__(self, found, script=None):
        super().__init__(script)
        self.found = found

    def background(self, adopt):
        return [Finding(self.found, adopt)]


class Finding:
    name = "finding"

    def __init__(self, found, adopt):
        self.found, self.adopt = found, adopt

    async def step(self):
        if not self.found:
            await asyncio.sleep(0.005)
            return
        batch = self.found.pop(0)
        if isinstance(batch, Exception):
            raise batch
        await self.adopt(batch)


def text(name, **changes):
    return Parcel(id=name, **changes).model_dump_json()


async def working(gateway, condition):
    """Let a whole worker process's worth run until it is so."""
    stop, options = asyncio.Event(), ExecutionOptions("worker-1")
    worker = Worker(
        [gateway.workload],
        gateway.store,
        gateway.broker,
        gateway.ambient,
        gateway.maintenance,
        options,
        drain=timedelta(0),
    )
    with (
        patch("holdfast.engine.execution._TAKE_WAIT", timedelta(milliseconds=20)),
        patch("holdfast.worker._PAUSE", timedelta(milliseconds=5)),
    ):
        running = asyncio.create_task(worker.run(stop))
        try:
            await eventually(condition)
        finally:
            stop.set()
            await running


@pytest.mark.parametrize("outbox", [False, True], ids=["store and queue apart", "in one commit"])
async def test_jobs_that_a_workload_finds_by_itself_are_recorded_and_worked_once(outbox):
    found = [[text("a"), text("b"), text("a")], [text("a")], ['{"id": 17'], [text("a", place="elsewhere")]]
    async with assembled(Finder(found), outbox=outbox) as gateway:

        async def settled():
            return len(await gateway.letters()) == 2 and len(gateway.workload.handled) == 2

        await working(gateway, settled)

        assert sorted(job.data.id for job in gateway.workload.handled) == ["a", "b"]
        assert [(await gateway.entry(name)).status for name in "ab"] == [Status.PROCESSED] * 2
        codes = {letter.reason_code for letter in await gateway.letters()}
        assert codes == {"VALIDATION_FAILED", "IDEMPOTENCY_CONFLICT"}


async def test_a_queue_that_is_away_gets_what_was_found_later():
    async with assembled(Finder([[text("a")]])) as gateway:
        gateway.broker.fail("publish", BrokerUnavailable("away"), times=1)

        async def recorded():
            return await gateway.store.entry("parcels", "parcel:a")

        await working(gateway, recorded)
        assert (await gateway.entry("a")).status is Status.RECEIVED
        assert await gateway.queued("parcels-main") == []

        gateway.clock.advance(GRACE)
        await working(gateway, lambda: gateway.workload.handled)
        assert (await gateway.entry("a")).attempt_count == 1


async def test_a_task_that_fails_is_told_of_and_goes_on(seen):
    troubles = [BrokerUnavailable("the list is away"), StoreUnavailable("the store is away"), LookupError("a bug")]
    async with assembled(Finder([*troubles, [text("a")]])) as gateway:
        await working(gateway, lambda: gateway.workload.handled)

    told = {
        event: fields["reason"] for event, fields in seen if fields.get("where") == "finding" and "reason" in fields
    }
    assert told == {
        events.QUEUE_UNAVAILABLE: "the list is away",
        events.STORE_UNAVAILABLE: "the store is away",
        events.WORKER_FAULT: "a bug",
    }
    (fault,) = [fields for event, fields in seen if event == events.WORKER_FAULT]
    assert fault["error"] == "LookupError"
    assert any("test_background.py" in line for line in fault["traceback"])


async def test_a_task_is_not_called_again_once_the_process_stops():
    stop, steps = asyncio.Event(), []

    class Last:
        name = "last"

        async def step(self):
            steps.append(1)
            stop.set()

    await asyncio.wait_for(run_repeatedly(Last(), stop), 60)
    assert steps == [1]


class Copying(Parcels):
    def __init__(self, *troubles):
        super().__init__(lambda job: Reject("NO", "never"))
        self.troubles, self.copied = list(troubles), []

    async def copy_letters(self, letters):
        self.copied.append(dict(letters))
        if self.troubles:
            raise self.troubles.pop(0)


async def test_letters_are_copied_as_they_are_published_and_again_where_the_place_was_away():
    async with assembled(Copying(BrokerUnavailable("away"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: gateway.workload.copied)
        (letter,) = await gateway.letters()
        assert await gateway.store.letters_to_publish("parcels", 10) == [letter]

        await gateway.maintenance.round()
        await gateway.maintenance.round()

        queued = dict(await gateway.queued("parcels-dead"))
        assert gateway.workload.copied == [queued, queued]
        assert list(queued) == [letter.id]
        assert await gateway.store.letters_to_publish("parcels", 10) == []


async def test_a_copy_that_cannot_be_made_holds_up_no_letter(seen):
    async with assembled(Copying(LookupError("a bug"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: gateway.workload.copied)
        assert await gateway.store.letters_to_publish("parcels", 10) == []
    assert ("copy_letters", "a bug") in [(fields.get("hook"), fields.get("reason")) for _, fields in seen]
