"""Stores and queues that are away while a worker works: nothing is lost and nothing is done twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Reject
from holdfast.contracts.errors import BrokerUnavailable, StoreContended, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.telemetry import events
from tests.support.gateway import GRACE, LEASE, assembled, delayed, empty, outcomes
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import Parcels


async def test_a_store_outage_while_settling_is_survived():
    async with assembled() as gateway:
        gateway.store.fail("settle", StoreUnavailable("disk full"), times=3)
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert len(gateway.workload.handled) == 1


async def test_a_commit_whose_answer_was_lost_is_not_applied_twice():
    async with assembled() as gateway:
        real, told = gateway.store.settle, []

        async def commits_and_fails(settlements):
            if not told:
                told.append(await real(settlements))
                raise StoreUnavailable
            return await real(settlements)

        gateway.store.settle = commits_and_fails
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert (await gateway.store.get("parcel_places", "p"))["place"] == "depot"


async def test_a_job_whose_documents_are_held_holds_back_no_neighbour(monkeypatch):
    monkeypatch.setattr("holdfast.engine.settling._POSTPONEMENT", timedelta(milliseconds=5))
    async with assembled() as gateway:
        real, held = gateway.store.settle, {"parcel.held"}
        refused = []

        async def contended(settlements):
            if held & {each.lease.job_id for each in settlements}:
                refused.append(len(settlements))
                raise StoreContended
            return await real(settlements)

        gateway.store.settle = contended
        for name in ("held", "free", "free too"):
            await gateway.accept(name)
        async with gateway.working() as execution:
            await gateway.until("free", Status.PROCESSED)
            await gateway.until("free too", Status.PROCESSED)
            await eventually(lambda: refused.count(1) >= 3)
            assert (await gateway.status("held"), execution.in_flight) == (Status.PROCESSING, 1)
            held.clear()
            entry = await gateway.until("held", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert len(gateway.workload.handled) == 3


async def test_a_store_outage_while_claiming_costs_nothing(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with assembled() as gateway:
        gateway.store.fail("claim", StoreUnavailable(), times=2)
        await gateway.accept("p")
        async with gateway.working():
            for calls in (1, 2):
                await eventually(lambda calls=calls: gateway.store.calls["claim"] == calls)
                await eventually(lambda: delayed(gateway, 1))
                gateway.clock.advance(timedelta(seconds=1))
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]


async def test_a_queue_outage_while_taking_is_survived(monkeypatch, seen):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with assembled() as gateway:
        gateway.broker.fail("take", BrokerUnavailable("away"), times=3)
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)

    assert [fields["where"] for event, fields in seen if event == events.QUEUE_UNAVAILABLE] == ["worker"] * 3


async def test_a_queue_that_misses_the_acknowledgement_delivers_in_vain():
    async with assembled() as gateway:
        gateway.broker.fail("settle", BrokerUnavailable())
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)
            await eventually(lambda: gateway.broker.calls["settle"] == 1)
            gateway.clock.advance(LEASE)
            assert await gateway.broker.recover("parcels-main") == 1
            await eventually(lambda: empty(gateway))

        assert outcomes(await gateway.entry("p")) == [("succeeded", None)]
        assert len(gateway.workload.handled) == 1


async def test_a_dead_letter_queue_that_is_away_gets_its_letter_later():
    async with assembled(Parcels(lambda job: Reject("GONE"))) as gateway:
        await gateway.accept("p")
        gateway.broker.fail("publish", BrokerUnavailable())
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: gateway.broker.calls["publish"] == 2)
        assert await gateway.queued("parcels-dead") == []

        assert (await gateway.maintenance.round()).letters_published == 1
        assert len(await gateway.queued("parcels-dead")) == 1


@pytest.mark.parametrize("verb", ["take", "claim", "settle"])
async def test_a_bug_in_an_adapter_does_not_end_the_worker(monkeypatch, verb):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with assembled() as gateway:
        port = gateway.broker if verb == "take" else gateway.store
        port.fail(verb, RuntimeError("a bug"), times=2 if verb == "settle" else 1)
        await gateway.accept("first")
        async with gateway.working():
            await eventually(lambda: port.calls[verb] >= 1)
            await gateway.accept("p")
            await gateway.until("p", Status.PROCESSED)


async def test_the_sweep_leaves_running_jobs_alone():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: valve.entered)
            gateway.clock.advance(GRACE * 2)
            report = await gateway.maintenance.round()
            assert (report.republished, report.recovered) == (0, 0)
            valve.open.set()
            await gateway.until("p", Status.PROCESSED)
