"""Where ledger and queue are one file, the commit that settles a job also acknowledges its delivery."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import BrokerUnavailable, Done, Reject, Retry, Snooze
from holdfast.contracts.ledger import Lease, Status
from holdfast.contracts.queues import Acknowledgement, Finished
from holdfast.contracts.transitions import Complete, Settlement
from tests.support.gateway import assembled
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, Parcels

HOUR = timedelta(hours=1)


async def refuse(acknowledgements):
    raise BrokerUnavailable


@pytest.mark.parametrize(
    ("outcome", "status", "left"),
    [
        (Done(), Status.PROCESSED, (0, 0, 0)),
        (Reject("GONE"), Status.DEAD_LETTERED, (0, 0, 0)),
        (Retry("BUSY"), Status.FAILED, (0, 1, 0)),
        (Snooze(HOUR), Status.RECEIVED, (0, 1, 0)),
    ],
)
async def test_the_queue_needs_no_acknowledgement_of_its_own(outcome, status, left):
    async with assembled(Parcels(lambda job: outcome), outbox=True) as gateway:
        gateway.broker.before("settle", refuse)
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: _settled(gateway, status))

        depth = await gateway.broker.depth("parcels-main")
        assert (depth.ready, depth.delayed, depth.active) == left
        assert len(gateway.workload.handled) == 1


async def _settled(gateway, status):
    return gateway.workload.handled and await gateway.status("p") is status


async def test_a_job_that_is_tried_again_wakes_the_worker():
    async with assembled(Parcels(lambda job: Retry("BUSY") if job.attempt == 1 else Done()), outbox=True) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
            gateway.clock.advance(RETRY_AFTER)
            await gateway.until("p", Status.PROCESSED)


async def test_a_stale_settlement_leaves_the_delivery_of_the_new_owner():
    async with assembled(outbox=True) as gateway:
        await gateway.accept("p")
        (stale,) = await gateway.broker.take("parcels-main", 1, wait=timedelta(0), lease=timedelta(seconds=1))
        gateway.clock.advance(timedelta(seconds=2))
        await gateway.broker.recover("parcels-main")
        (fresh,) = await gateway.broker.take("parcels-main", 1, wait=timedelta(0), lease=HOUR)

        assert stale.token != fresh.token
        (answer,) = await gateway.store.settle(
            [Settlement("parcels", Lease("parcel.p", 1), Complete(HOUR), Acknowledgement(fresh, Finished()))]
        )

        assert answer.stale  # nobody has claimed the job
        assert (await gateway.broker.depth("parcels-main")).active == 1
