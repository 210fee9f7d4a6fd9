"""Pausing, removing, counting, and a queue that loses everything."""

from __future__ import annotations

import asyncio

from holdfast.contracts.queues import Acknowledgement, Again, Depth, Finished, RateLimit
from tests.conformance.broker.deliveries import (
    AWKWARD,
    HOUR,
    LONG_WAIT,
    OTHER,
    QUEUE,
    job,
    settle,
    take,
    taken_ids,
)


class Steering:
    async def test_a_paused_queue_gives_nothing_to_anybody(self, harness, broker):
        elsewhere = await harness.broker()
        await broker.publish(QUEUE, [job("a")])
        await broker.publish(OTHER, [job("x")])

        await broker.pause(QUEUE)
        await broker.pause(QUEUE)
        await elsewhere.publish(QUEUE, [job("b")])

        assert await take(broker) == []
        assert await take(elsewhere) == []
        assert (await elsewhere.depth(QUEUE)).paused is True
        assert await taken_ids(broker, queue=OTHER) == ["x"]
        await elsewhere.resume(QUEUE)
        assert (await broker.depth(QUEUE)).paused is False
        assert await taken_ids(broker, wait=LONG_WAIT) == ["a", "b"]

    async def test_the_reason_of_a_pause_is_shown_until_the_queue_is_resumed(self, harness, broker):
        elsewhere = await harness.broker()
        await broker.publish(QUEUE, [job("a")])

        await broker.pause(QUEUE, reason=AWKWARD)

        assert await elsewhere.depth(QUEUE) == Depth(1, 0, 0, paused=True, paused_because=AWKWARD)
        assert await elsewhere.depth(OTHER) == Depth(0, 0, 0, paused=False)
        await elsewhere.resume(QUEUE)
        assert await broker.depth(QUEUE) == Depth(1, 0, 0, paused=False)
        await broker.pause(QUEUE)
        assert await broker.depth(QUEUE) == Depth(1, 0, 0, paused=True)

    async def test_a_count_may_stop_early_and_never_says_too_little(self, broker):
        await broker.publish(QUEUE, [job(f"j{number}") for number in range(7)])

        assert (await broker.depth(QUEUE)).ready == 7
        assert 5 <= (await broker.depth(QUEUE, most=5)).ready <= 7
        assert (await broker.depth(QUEUE, most=20)).ready == 7

    async def test_the_first_reason_of_a_pause_stays(self, broker):
        await broker.pause(QUEUE)
        await broker.pause(QUEUE, reason="The account is suspended.")
        await broker.pause(QUEUE, reason="The provider does not answer.")
        await broker.pause(QUEUE)

        assert (await broker.depth(QUEUE)).paused_because == "The account is suspended."
        await broker.resume(QUEUE)
        await broker.pause(QUEUE, reason="Maintenance.")
        assert (await broker.depth(QUEUE)).paused_because == "Maintenance."

    async def test_a_waiting_taker_is_woken_when_the_queue_is_resumed(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        await broker.pause(QUEUE)
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))
        await asyncio.sleep(0)

        await (await harness.broker()).resume(QUEUE)

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_jobs_in_work_are_settled_while_the_queue_is_paused(self, broker):
        await broker.publish(QUEUE, [job("a"), job("b")])
        done, back = await take(broker)
        await broker.pause(QUEUE)

        await broker.settle([Acknowledgement(done, Finished()), Acknowledgement(back, Again())])

        assert await take(broker) == []
        await broker.resume(QUEUE)
        assert await taken_ids(broker, wait=LONG_WAIT) == ["b"]

    async def test_jobs_that_nobody_holds_can_be_removed(self, broker):
        await broker.publish(QUEUE, [job("ready"), job("later", delay=HOUR), job("kept"), job("held", priority=0)])
        await broker.publish(OTHER, [job("ready")])

        await broker.remove(QUEUE, ["ready", "later", "never"])

        assert await broker.depth(QUEUE) == Depth(2, 0, 0, paused=False)
        assert await taken_ids(broker) == ["kept", "held"]
        assert await taken_ids(broker, queue=OTHER) == ["ready"]

    async def test_a_leased_job_is_not_removed(self, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker)

        await broker.remove(QUEUE, ["a"])

        assert await broker.renew(held, HOUR) == []
        await settle(broker, Again(), *held)
        assert await taken_ids(broker, wait=LONG_WAIT) == ["a"]

    async def test_the_depth_counts_what_waits_and_what_is_in_work(self, harness, broker):
        await broker.publish(QUEUE, [job(f"j{n}", priority=n % 3) for n in range(6)])
        await broker.publish(QUEUE, [job("later", delay=HOUR)])
        await take(broker, 2)

        assert await (await harness.broker()).depth(QUEUE) == Depth(4, 1, 2, paused=False)
        assert await broker.depth(OTHER) == Depth(0, 0, 0, paused=False)


class Limiting:
    async def test_no_more_jobs_are_started_than_the_rate_allows(self, harness, broker):
        rate = RateLimit(3, per=2 * harness.moment)
        elsewhere = await harness.broker()
        await broker.publish(QUEUE, [job(f"j{n}") for n in range(8)])

        first = [*await take(broker, 2, rate=rate), *await take(elsewhere, 5, rate=rate)]

        assert len(first) == 3
        assert await take(broker, rate=rate) == []
        assert await broker.depth(QUEUE) == Depth(5, 0, 3, paused=False)
        await harness.pass_time(2 * harness.moment)
        assert len(await take(elsewhere, rate=rate, wait=LONG_WAIT)) == 3
        assert await take(broker, rate=rate) == []

    async def test_settling_does_not_make_room_under_the_rate(self, harness, broker):
        rate = RateLimit(1, per=HOUR)
        await broker.publish(QUEUE, [job("a"), job("b")])
        await settle(broker, Finished(), *await take(broker, rate=rate))

        assert await take(broker, rate=rate) == []

    async def test_each_queue_has_its_own_rate(self, broker):
        rate = RateLimit(1, per=HOUR)
        await broker.publish(QUEUE, [job("a"), job("b")])
        await broker.publish(OTHER, [job("x"), job("y")])

        assert await taken_ids(broker, rate=rate) == ["a"]
        assert await taken_ids(broker, rate=rate, queue=OTHER) == ["x"]
        assert await taken_ids(broker, queue=OTHER) == ["y"]


class Forgetting:
    async def test_the_epoch_stays_while_the_queue_does(self, harness, broker):
        mark = await broker.epoch()
        await broker.publish(QUEUE, [job("a")])
        await settle(broker, Finished(), *await take(broker))

        assert mark
        assert await broker.epoch() == mark
        assert await (await harness.broker()).epoch() == mark

    async def test_processes_that_start_together_get_the_same_epoch(self, harness):
        brokers = [await harness.broker() for _ in range(3)]

        marks = await asyncio.gather(*(broker.epoch() for broker in brokers * 3))

        assert len(set(marks)) == 1

    async def test_a_new_epoch_shows_that_everything_is_gone(self, harness, broker):
        mark = await broker.epoch()
        await broker.publish(QUEUE, [job("a"), job("b"), job("c", delay=HOUR)])
        held = await take(broker, 1)
        await broker.pause(QUEUE, reason="Maintenance.")

        await harness.lose_everything()

        fresh = await broker.epoch()
        assert fresh != mark
        assert await (await harness.broker()).epoch() == fresh
        assert await broker.depth(QUEUE) == Depth(0, 0, 0, paused=False)
        assert await broker.renew(held, HOUR) == held
        await settle(broker, Again(), *held)
        assert await take(broker) == []

    async def test_a_queue_that_forgot_can_be_filled_again(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        await take(broker)
        await harness.lose_everything()

        await broker.publish(QUEUE, [job("a", data="again")])

        assert [each.data for each in await take(broker)] == ["again"]
