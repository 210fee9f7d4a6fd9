"""A worker that vanishes: what is lost, what is tried again, and what is not."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Status, Upsert
from holdfast.testing import Harness
from tests.harness.shop import Order, Shop, Synced


def outcomes(entry):
    return [(each.outcome.value, each.error_code) for each in entry.attempts]


@pytest.mark.parametrize(
    ("point", "calls"),
    [("worker.claimed", ["1#2"]), ("worker.handled", ["1#1", "1#2"])],
)
async def test_a_crash_costs_an_attempt_and_the_job_is_tried_again(shop, h, point, calls):
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash(point)
    await h.settle()
    assert (await h.job(order)).status is Status.PROCESSING
    await h.advance("29s")
    assert (await h.job(order)).status is Status.PROCESSING
    await h.advance("1s")

    assert await h.result(order) == Synced(number="1", attempt=2)
    assert shop.calls == calls
    first, second = (await h.job(order)).attempts
    assert (first.outcome, second.outcome) == ("lost", "succeeded")
    assert first.worker != second.worker
    assert second.started_at - first.started_at == timedelta(seconds=30)


async def test_a_crash_before_the_claim_costs_no_attempt(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash("worker.taken")
    await h.advance("1m")
    assert await h.result(order) == Synced(number="1", attempt=1)


@pytest.mark.parametrize("point", ["worker.settled", "worker.acknowledged"])
async def test_a_crash_after_the_commit_loses_nothing_and_repeats_nothing(shop, h, point):
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash(point)
    await h.settle()
    assert await h.result(order) == Synced(number="1", attempt=1)
    await h.advance("1h")
    assert shop.calls == ["1#1"]
    assert outcomes(await h.job(order)) == [("succeeded", None)]


async def test_nothing_of_a_lost_attempt_is_written(shop, h):
    shop.script = lambda order, ctx: ctx.submit(shop.send_mail, order)
    await h.submit(shop.sync_order, Order(number="1"))
    h.crash()
    await h.settle()
    assert await h.sent(shop.send_mail) == []
    await h.advance("1m")
    assert await h.sent(shop.send_mail) == [Order(number="1")]


async def test_a_crash_behind_the_point_of_no_return_is_a_dead_letter(shop, h):
    async def pay(order, ctx):
        await ctx.proceed([Upsert("orders", order.number, {"state": "paying"})])

    shop.script = pay
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash("worker.proceeded")
    await h.advance("1h")

    (letter,) = await h.dead_letters(order)
    assert letter.reason_code == "OUTCOME_UNKNOWN"
    assert shop.calls == ["1#1"]
    assert (await h.record("orders", "1"))["state"] == "paying"


async def test_a_crash_before_the_point_of_no_return_is_tried_again(shop, h):
    async def pay(order, ctx):
        await ctx.proceed()

    shop.script = pay
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash("worker.proceeding")
    await h.advance("1m")
    assert await h.result(order) == Synced(number="1", attempt=2)


async def test_handlers_have_points_of_their_own_also_in_threads(shop, h):
    order = await h.submit(shop.in_a_thread, Order(number="1"))
    h.crash("shop.in_a_thread")
    await h.settle()
    assert shop.calls == []
    await h.advance("1m")
    assert await h.result(order) == "1"
    assert outcomes(await h.job(order))[0] == ("lost", "LOST")


async def test_a_job_that_always_crashes_its_worker_becomes_a_dead_letter(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"))
    for _ in range(3):
        h.crash()
    await h.advance("10m")
    (letter,) = await h.dead_letters(order)
    assert (letter.reason_code, shop.calls) == ("WORKER_LOST", ["1#1", "1#2", "1#3"])


async def test_all_jobs_of_the_worker_are_lost_with_it(shop, h):
    running, ended = asyncio.Event(), []

    async def work(order, ctx):
        if ctx.job.attempt > 1:
            return
        if order.number == "1":
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(order.number)
        await running.wait()

    shop.script = work
    orders = [await h.submit(shop.sync_order, Order(number=number)) for number in ("1", "2")]
    h.crash()
    await h.settle()
    assert ended == ["1"]
    await h.advance("1m")
    assert [(await h.result(each)).attempt for each in orders] == [2, 2]


async def test_a_crash_during_maintenance(shop, h):
    shop.script = lambda order, ctx: ctx.submit(shop.send_mail, order)
    order = await h.submit(shop.sync_order, Order(number="1"))
    h.crash("maintenance.swept")
    await h.settle()
    assert await h.result(order)
    await h.advance("1m")
    assert "mail 1" in shop.calls


async def test_a_crash_is_that_of_one_harness(shop, h):
    other = Shop()
    async with Harness(other.app) as calm:
        h.crash()
        order = await calm.submit(other.sync_order, Order(number="1"))
        await calm.settle()
        assert (await calm.result(order)).attempt == 1
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.advance("1m")
    assert (await h.result(order)).attempt == 2


async def test_a_point_that_no_worker_passes_is_refused(h):
    for point in ("worker.handeld", "store.committed", "intake.recorded"):
        with pytest.raises(ValueError, match=r"Known: worker\.taken"):
            h.crash(point)


async def test_a_crash_that_did_not_happen_fails_the_test(shop):
    with pytest.raises(AssertionError, match=r"has not passed worker\.handled"):
        async with Harness(shop.app) as h:
            h.crash()
    async with Harness(shop.app) as h:
        await h.submit(shop.sync_order, Order(number="1"))
        await h.settle()
        assert shop.calls == ["1#1"]


async def test_a_failing_test_keeps_its_own_error(shop):
    async def fails():
        async with Harness(shop.app) as h:
            h.crash()
            raise KeyError

    with pytest.raises(KeyError):
        await fails()
