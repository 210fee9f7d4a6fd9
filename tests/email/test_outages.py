"""Emails while our store or queue is unavailable: nothing is lost, and no late write undoes a newer one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import JobState, Publish
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.transitions import Proceed
from tests.support.email_client import email_client
from tests.support.gateway import GRACE, LEASE, outcomes
from tests.support.smtp_server import HANG
from tests.support.waiting import eventually


async def test_an_email_that_did_not_reach_the_queue_is_pending_until_maintenance_publishes_it():
    async with email_client(apart=True) as client:
        client.gateway.broker.break_down(BrokerUnavailable(), "publish")
        outbox_id = await client.post()
        assert await client.status(outbox_id) == "PENDING"
        client.gateway.broker.repair()
        client.later(GRACE + LEASE + timedelta(seconds=1))
        await client.gateway.maintenance.round()
        assert await client.status(outbox_id) == "ENQUEUED"
        async with client.working():
            await client.until(outbox_id, "SENT")


async def test_a_late_enqueued_effect_never_undoes_the_status_of_a_worker():
    async with email_client(apart=True) as client:
        hold = asyncio.Event()
        client.gateway.store.before("apply", lambda *_: hold.wait())
        rule = client.server.rule("end", HANG, times=1)
        outbox_id = await client.post()
        job = (await client.entry(outbox_id)).body
        async with client.working():
            await client.until(outbox_id, "SENDING")
            hold.set()
            await client.gateway.intake.drain()
            assert await client.status(outbox_id) == "SENDING"
            rule.release()
            await client.until(outbox_id, "SENT")
        data = client.workload.contract.model_validate_json(job)
        late = client.workload.on_transition(Publish(), JobState(outbox_id, outbox_id, data, 0, 1))
        await client.gateway.store.apply(late)
        assert await client.status(outbox_id) == "SENT"


async def test_an_unavailable_store_right_before_sending_costs_no_attempt_and_sends_nothing():
    async with email_client() as client:
        outbox_id = await client.post()
        failures = [StoreUnavailable()]

        async def away(settlements):
            if failures and any(isinstance(each.transition, Proceed) for each in settlements):
                raise failures.pop()

        client.gateway.store.before("settle", away)
        async with client.working():
            await eventually(lambda: not failures)
            await eventually(lambda: _waits(client))
            assert client.server.taken == []
            client.later(timedelta(seconds=1))
            await client.until(outbox_id, "SENT")
        assert outcomes(await client.entry(outbox_id)) == [("succeeded", None)]


async def _waits(client):
    return (await client.depth()).delayed == 1
