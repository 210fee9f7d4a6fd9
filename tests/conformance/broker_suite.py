"""What every broker promises, told against :class:`holdfast.contracts.ports.Broker` alone.

An adapter subclasses :class:`BrokerSuite` and supplies the fixture ``harness``, a
:class:`~tests.conformance.harness.BrokerHarness`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Depth, Failed, Finished, QueueJob
from tests.support.waiting import eventually

QUEUE = "letters-main"
OTHER = "letters-other"
HOUR = timedelta(hours=1)
NO_WAIT = timedelta(0)
LONG_WAIT = timedelta(seconds=30)

AWKWARD = '{"text": "naïve 🦑 \' \\" \\\\ ; -- \u2028 ﷽"}'


def job(job_id: str, **changes) -> QueueJob:
    return QueueJob(**({"job_id": job_id, "data": f'{{"of": "{job_id}"}}'} | changes))


async def take(broker, limit=100, *, queue=QUEUE, wait=NO_WAIT, lease=HOUR) -> list[Delivery]:
    return await broker.take(queue, limit, wait=wait, lease=lease)


async def taken_ids(broker, limit=100, **options) -> list[str]:
    return [delivery.job_id for delivery in await take(broker, limit, **options)]


async def settle(broker, handling, *deliveries) -> None:
    await broker.settle([Acknowledgement(delivery, handling) for delivery in deliveries])


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

    async def test_nothing_is_published_for_nothing(self, broker):
        await broker.publish(QUEUE, [])
        await broker.settle([])
        await broker.remove(QUEUE, [])

        assert await take(broker) == []
        assert await broker.renew([], HOUR) == []

    async def test_no_more_is_taken_than_asked_for(self, broker):
        await broker.publish(QUEUE, [job(f"j{n}") for n in range(5)])

        assert [len(await take(broker, 2)) for _ in range(4)] == [2, 2, 1, 0]

    async def test_queues_are_apart(self, broker):
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

    async def test_a_waiting_taker_is_woken_by_a_job_that_is_given_back(self, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker)
        waiting = asyncio.create_task(take(broker, wait=LONG_WAIT))
        await asyncio.sleep(0)

        await settle(broker, Again(), *held)

        assert [each.job_id for each in await waiting] == ["a"]

    async def test_a_waiting_taker_does_not_wait_for_a_full_batch(self, broker):
        await broker.publish(QUEUE, [job("a")])

        assert await taken_ids(broker, 50, wait=LONG_WAIT) == ["a"]


class Leasing:
    async def test_a_leased_job_is_held(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        await take(broker, lease=HOUR)

        assert await take(await harness.broker()) == []
        assert await broker.recover(QUEUE) == 0

    async def test_a_lapsed_job_is_recovered_and_given_to_another(self, harness, broker):
        await broker.publish(QUEUE, [job("a"), job("b"), job("c")])
        (first, _) = await take(broker, 2, lease=harness.moment)
        await take(broker, lease=HOUR)
        await harness.pass_time(harness.moment)
        elsewhere = await harness.broker()

        recovered = await eventually(lambda: elsewhere.recover(QUEUE))

        assert recovered == 2
        assert await broker.recover(QUEUE) == 0
        again = await take(elsewhere)
        assert sorted(each.job_id for each in again) == ["a", "b"]
        assert first.token not in {each.token for each in again}

    async def test_recovering_is_for_one_queue(self, harness, broker):
        await broker.publish(OTHER, [job("a")])
        await take(broker, queue=OTHER, lease=harness.moment)
        await harness.pass_time(harness.moment)

        assert await broker.recover(QUEUE) == 0

    async def test_a_renewed_lease_holds_for_longer(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker, lease=2 * harness.moment)

        assert await broker.renew(held, HOUR) == []

        await harness.pass_time(2 * harness.moment)
        assert await broker.recover(QUEUE) == 0
        assert await take(broker) == []

    async def test_leases_that_were_lost_are_returned(self, harness, broker):
        await broker.publish(QUEUE, [job("ours"), job("done"), job("lost")])
        ours, done = await take(broker, 2)
        (lost,) = await take(broker, lease=harness.moment)
        await settle(broker, Finished(), done)
        await harness.pass_time(harness.moment)
        await eventually(lambda: broker.recover(QUEUE))
        (theirs,) = await take(await harness.broker())
        strange = Delivery(QUEUE, "never", "{}", "a token that nobody gave")

        assert await broker.renew([done, ours, lost, strange, theirs], HOUR) == [done, lost, strange]


class Acknowledging:
    async def test_a_finished_job_is_gone(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])

        await settle(broker, Finished('{"at": 1}'), *await take(broker, lease=harness.moment))

        await harness.pass_time(harness.moment)
        assert await broker.recover(QUEUE) == 0
        assert await take(broker) == []
        assert await broker.depth(QUEUE) == Depth(0, 0, 0, paused=False)

    async def test_a_job_that_is_given_back_is_delivered_again(self, broker):
        await broker.publish(QUEUE, [job("a", data="first")])
        (first,) = await take(broker)

        await settle(broker, Again(reason="HTTP_503: away"), first)

        (second,) = await take(broker, wait=LONG_WAIT)
        assert (second.job_id, second.data) == ("a", "first")
        assert second.token != first.token

    async def test_a_job_can_be_given_back_with_new_data(self, broker):
        await broker.publish(QUEUE, [job("a", data="first"), job("b", data="other")])
        first, other = await take(broker)

        await broker.settle([Acknowledgement(first, Again(data=AWKWARD)), Acknowledgement(other, Again())])

        data = {each.job_id: each.data for each in await take(broker, wait=LONG_WAIT)}
        assert data == {"a": AWKWARD, "b": "other"}

    async def test_a_job_can_be_given_back_for_later(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        await settle(broker, Again(2 * harness.moment), *await take(broker))
        assert await take(broker) == []

        await harness.pass_time(2 * harness.moment)

        assert await taken_ids(broker, wait=LONG_WAIT) == ["a"]

    async def test_a_failed_job_is_not_delivered_again(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])

        await settle(broker, Failed("HTTP_404: gone"), *await take(broker, lease=harness.moment))

        await harness.pass_time(harness.moment)
        assert await broker.recover(QUEUE) == 0
        assert await take(broker) == []
        depth = await broker.depth(QUEUE)
        assert (depth.ready, depth.delayed, depth.active) == (0, 0, 0)

    async def test_the_id_of_a_failed_job_is_free_again_unless_it_is_kept(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        await settle(broker, Failed("HTTP_404: gone"), *await take(broker))

        await broker.publish(QUEUE, [job("a", data="again")])
        assert [each.data for each in await take(broker)] == ([] if harness.keeps_failed else ["again"])

    async def test_a_removed_job_can_be_published_again_whatever_became_of_it(self, broker):
        await broker.publish(QUEUE, [job("done"), job("failed")])
        done, failed = await take(broker)
        await broker.settle([Acknowledgement(done, Finished()), Acknowledgement(failed, Failed("gone"))])

        await broker.remove(QUEUE, ["done", "failed"])
        await broker.publish(QUEUE, [job("done"), job("failed")])

        assert sorted(await taken_ids(broker)) == ["done", "failed"]

    @pytest.mark.parametrize("handling", [Finished(), Again(), Again(HOUR), Failed("late")], ids=repr)
    async def test_a_worker_that_lost_its_job_settles_nothing(self, harness, broker, handling):
        await broker.publish(QUEUE, [job("a"), job("b")])
        (late,) = await take(broker, 1, lease=harness.moment)
        (neighbour,) = await take(broker, 1)
        await harness.pass_time(harness.moment)
        await eventually(lambda: broker.recover(QUEUE))
        elsewhere = await harness.broker()
        (theirs,) = await take(elsewhere)

        await broker.settle([Acknowledgement(late, handling), Acknowledgement(neighbour, Finished())])

        assert await take(broker) == []
        assert await elsewhere.renew([theirs], HOUR) == []
        assert await broker.depth(QUEUE) == Depth(0, 0, 1, paused=False)

    async def test_a_job_that_was_recovered_is_not_finished_by_the_worker_that_lost_it(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        late = await take(broker, lease=harness.moment)
        await harness.pass_time(harness.moment)
        await eventually(lambda: broker.recover(QUEUE))

        await settle(broker, Finished(), *late)

        assert await taken_ids(broker) == ["a"]

    async def test_a_delivery_is_settled_once(self, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker)
        await settle(broker, Again(), *held)

        await settle(broker, Finished(), *held)

        assert await taken_ids(broker, wait=LONG_WAIT) == ["a"]

    async def test_another_process_may_settle(self, harness, broker):
        await broker.publish(QUEUE, [job("a")])
        held = await take(broker)

        await settle(await harness.broker(), Finished(), *held)

        assert await broker.depth(QUEUE) == Depth(0, 0, 0, paused=False)


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
        await broker.publish(QUEUE, [job("ready"), job("delayed", delay=HOUR), job("kept"), job("held", priority=0)])
        await broker.publish(OTHER, [job("ready")])

        await broker.remove(QUEUE, ["ready", "delayed", "never"])

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


class Forgetting:
    async def test_the_mark_stays_while_the_queue_does(self, harness, broker):
        mark = await broker.incarnation()
        await broker.publish(QUEUE, [job("a")])
        await settle(broker, Finished(), *await take(broker))

        assert mark
        assert await broker.incarnation() == mark
        assert await (await harness.broker()).incarnation() == mark

    async def test_processes_that_start_together_agree_on_the_mark(self, harness):
        brokers = [await harness.broker() for _ in range(3)]

        marks = await asyncio.gather(*(broker.incarnation() for broker in brokers * 3))

        assert len(set(marks)) == 1

    async def test_another_mark_tells_that_everything_is_gone(self, harness, broker):
        mark = await broker.incarnation()
        await broker.publish(QUEUE, [job("a"), job("b"), job("c", delay=HOUR)])
        held = await take(broker, 1)
        await broker.pause(QUEUE)

        await harness.lose_everything()

        fresh = await broker.incarnation()
        assert fresh != mark
        assert await (await harness.broker()).incarnation() == fresh
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


class BrokerSuite(Delivering, Waiting, Leasing, Acknowledging, Steering, Forgetting):
    """All chapters."""

    @pytest.fixture
    async def broker(self, harness):
        return await harness.broker()
