"""Emails while our store or queue is unavailable: nothing is lost, and no late write undoes a newer one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import JobState, Publish
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.transitions import Proceed
from tests.email.post_office import post_office
from tests.support.smtp_server import HANG
from tests.support.stage import GRACE, LEASE, outcomes
from tests.support.waiting import eventually


async def test_an_email_that_did_not_reach_the_queue_is_pending_until_maintenance_publishes_it():
    async with post_office(apart=True) as office:
        office.stage.broker.break_down(BrokerUnavailable(), "publish")
        outbox_id = await office.post()
        assert await office.status(outbox_id) == "PENDING"
        office.stage.broker.repair()
        office.later(GRACE + LEASE + timedelta(seconds=1))
        await office.stage.maintenance.round()
        assert await office.status(outbox_id) == "ENQUEUED"
        async with office.working():
            await office.until(outbox_id, "SENT")


async def test_a_late_enqueued_effect_never_undoes_the_status_of_a_worker():
    async with post_office(apart=True) as office:
        hold = asyncio.Event()
        office.stage.store.before("apply", lambda *_: hold.wait())
        rule = office.server.rule("end", HANG, times=1)
        outbox_id = await office.post()
        job = (await office.entry(outbox_id)).body
        async with office.working():
            await office.until(outbox_id, "SENDING")
            hold.set()
            await office.stage.intake.drain()
            assert await office.status(outbox_id) == "SENDING"
            rule.release()
            await office.until(outbox_id, "SENT")
        data = office.workload.contract.model_validate_json(job)
        late = office.workload.on_transition(Publish(), JobState(outbox_id, outbox_id, data, 0, 1))
        await office.stage.store.apply(late)
        assert await office.status(outbox_id) == "SENT"


async def test_an_unavailable_store_right_before_sending_costs_no_attempt_and_sends_nothing():
    async with post_office() as office:
        outbox_id = await office.post()
        failures = [StoreUnavailable()]

        async def away(settlements):
            if failures and any(isinstance(each.transition, Proceed) for each in settlements):
                raise failures.pop()

        office.stage.store.before("settle", away)
        async with office.working():
            await eventually(lambda: not failures)
            await eventually(lambda: _waits(office))
            assert office.server.taken == []
            office.later(timedelta(seconds=1))
            await office.until(outbox_id, "SENT")
        assert outcomes(await office.entry(outbox_id)) == [("succeeded", None)]


async def _waits(office):
    return (await office.depth()).delayed == 1
