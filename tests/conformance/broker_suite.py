"""Tests of what every broker guarantees. They use only :class:`holdfast.contracts.ports.Broker`.

An adapter subclasses :class:`BrokerSuite` and supplies the fixture ``harness``, a
:class:`~tests.conformance.harness.BrokerHarness`. The other test classes are in ``tests/conformance/broker``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast.contracts.queues import Again, Depth, Finished
from tests.conformance.broker.deliveries import (
    AWKWARD,
    HOUR,
    LONG_WAIT,
    NO_WAIT,
    OTHER,
    QUEUE,
    job,
    settle,
    take,
    taken_ids,
)
from tests.conformance.broker.leasing import Acknowledging, Leasing
from tests.conformance.broker.looking import Looking
from tests.conformance.broker.sharing import Flowing, TakingPermits
from tests.conformance.broker.steering import Forgetting, Limiting, Steering


class Delivering:
    async def test_published_jobs_are_taken(self, broker):
        await broker.publish(QUEUE, [job("a"), job("b")])

        first, second = await take(broker)

        assert (first.queue, first.job_id, first.data) == (QUEUE, "a", '{"of": "a"}')
        assert second.job_id == "b"
        assert await take(broker) == []

    async def test_data_comes_out_as_it_went_in(self, broker):
        long = '"' + "é" * 200_000 + '"'
        await broker.publish(QUEUE, [job("a", data=AWKWARD), job("b", data=long), job("odd.id-1!~_", data="not json")])

        deliveries = await take(broker)

        assert [each.data for each in deliveries] == [AWKWARD, long, "not json"]
        assert deliveries[2].job_id == "odd.id-1!~_"

    async def test_a_delivery_has_the_time_at_which_its_job_was_added(self, broker):
        await broker.publish(QUEUE, [job("a")])
        (first,) = await take(broker)
        await settle(broker, Again(), first)
        (second,) = await take(broker)

        assert first.sent_at is not None
        assert first.sent_at == second.sent_at

    async def test_an_empty_batch_publishes_nothing(self, broker):
        await broker.publish(QUEUE, [])
        await broker.settle([])
        await broker.remove(QUEUE, [])

        assert await take(broker) == []
        assert await broker.renew([], HOUR) == []

    async def test_no_more_is_taken_than_asked_for(self, broker):
        await broker.publish(QUEUE, [job(f"j{n}") for n in range(5)])

        assert [len(await take(broker, 2)) for _ in range(4)] == [2, 2, 1, 0]

    async def test_each_queue_has_its_own_jobs(self, broker):
        await broker.publish(QUEUE, [job("a", data="1")])
        await broker.publish(OTHER, [job("a", data="2")])

        (there,) = await take(broker, queue=OTHER)
        (here,) = await take(broker)

        assert (here.data, there.data) == ("1", "2")

    async def test_the_best_priority_goes_first_then_the_oldest(self, broker):
        await broker.publish(QUEUE, [job("low-1", priority=9), job("mid-1", priority=2), job("top-1")])
        await broker.publish(QUEUE, [job("mid-2", priority=2), job("top-2"), job("low-2", priority=9)])

        order = ["top-1", "top-2", "mid-1", "mid-2", "low-1", "low-2"]

        assert await taken_ids(broker, 4) + await taken_ids(broker, 4) == order

    async def test_a_delayed_job_waits_for_its_time(self, harness, broker):
        await broker.publish(QUEUE, [job("later", delay=2 * harness.moment), job("now")])
        assert await taken_ids(broker) == ["now"]

        await harness.pass_time(2 * harness.moment)

        assert await taken_ids(broker, wait=LONG_WAIT) == ["later"]

    @pytest.mark.parametrize("state", ["ready", "delayed", "leased", "given back"])
    async def test_a_job_that_the_queue_holds_is_left_as_it_is(self, harness, broker, state):
        await broker.publish(QUEUE, [job("a", data="first", delay=harness.moment if state == "delayed" else NO_WAIT)])
        held = await take(broker) if state in {"leased", "given back"} else []
        if state == "given back":
            await settle(broker, Again(harness.moment), *held)

        await (await harness.broker()).publish(QUEUE, [job("a", data="second"), job("a", data="third")])

        if state == "ready":
            assert [each.data for each in await take(broker)] == ["first"]
            return
        assert await take(broker) == []
        if state == "leased":
            await settle(broker, Again(), *held)
        await harness.pass_time(harness.moment)
        assert [each.data for each in await take(broker, wait=LONG_WAIT)] == ["first"]
        assert await take(broker) == []

    async def test_a_job_that_is_published_twice_at_once_is_taken_once(self, broker):
        await broker.publish(QUEUE, [job("a", data="first"), job("b"), job("a", data="second")])

        assert [each.data for each in await take(broker)] == ["first", '{"of": "b"}']

    async def test_takers_never_share_a_job(self, harness):
        brokers = [await harness.broker() for _ in range(3)]
        everything = {f"j{n}" for n in range(500)}
        await brokers[0].publish(QUEUE, [job(job_id) for job_id in everything])
        seen = Counter()

        async def work(broker):
            while deliveries := await take(broker, 7):
                seen.update(each.job_id for each in deliveries)
                await settle(broker, Finished(), *deliveries)

        await asyncio.gather(*(work(broker) for broker in brokers * 3))

        assert set(seen) == everything
        assert set(seen.values()) == {1}
        assert await brokers[1].depth(QUEUE) == Depth(0, 0, 0, paused=False)

    async def test_a_broker_that_is_there_answers_a_ping(self, broker):
        await broker.ping()


class Waiting:
    async def test_an_empty_queue_gives_nothing_after_the_wait(self, broker):
        assert await take(broker, wait=timedelta(milliseconds=20)) == []

    async def test_a_waiting_taker_is_woken_by_a_job(self, harness, broker):
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))
        await asyncio.sleep(0)

        await broker.publish(QUEUE, [job("a")])

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_a_waiting_taker_is_woken_by_a_job_of_another_process(self, harness, broker):
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))
        await asyncio.sleep(0)

        await (await harness.broker()).publish(QUEUE, [job("a")])

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_a_waiting_taker_is_woken_when_a_delay_is_over(self, harness, broker):
        await broker.publish(QUEUE, [job("a", delay=harness.moment)])
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))

        await harness.pass_time(harness.moment)

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_a_waiting_taker_is_woken_by_a_job_that_is_released(self, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker)
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))
        await asyncio.sleep(0)

        await settle(broker, Again(), *held)

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_a_waiting_taker_does_not_wait_for_a_full_batch(self, broker):
        await broker.publish(QUEUE, [job("a")])

        assert await taken_ids(broker, 50, wait=LONG_WAIT) == ["a"]


class BrokerSuite(
    Delivering, Waiting, Leasing, Acknowledging, Looking, Steering, Limiting, TakingPermits, Flowing, Forgetting
):
    """All test classes of the suite."""

    @pytest.fixture
    async def broker(self, harness):
        return await harness.broker()
