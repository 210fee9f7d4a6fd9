"""Leases and acknowledgements: a delivery belongs to one taker until the delivery is settled or its lease is lost."""

from __future__ import annotations

import pytest

from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Depth, Failed, Finished
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
from tests.support.waiting import eventually


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

    async def test_a_job_that_is_released_is_delivered_again(self, broker):
        await broker.publish(QUEUE, [job("a", data="first")])
        (first,) = await take(broker)

        await settle(broker, Again(reason="HTTP_503: away"), first)

        (second,) = await take(broker, wait=LONG_WAIT)
        assert (second.job_id, second.data) == ("a", "first")
        assert second.token != first.token

    async def test_a_job_can_be_released_with_new_data(self, broker):
        await broker.publish(QUEUE, [job("a", data="first"), job("b", data="other")])
        first, other = await take(broker)

        await broker.settle([Acknowledgement(first, Again(data=AWKWARD)), Acknowledgement(other, Again())])

        data = {each.job_id: each.data for each in await take(broker, wait=LONG_WAIT)}
        assert data == {"a": AWKWARD, "b": "other"}

    async def test_a_job_can_be_released_for_later(self, harness, broker):
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
        await broker.publish(QUEUE, [job("done"), job("broken")])
        done, failed = await take(broker)
        await broker.settle([Acknowledgement(done, Finished()), Acknowledgement(failed, Failed("gone"))])

        await broker.remove(QUEUE, ["broken", "done"])
        await broker.publish(QUEUE, [job("done"), job("broken")])

        assert sorted(await taken_ids(broker)) == ["broken", "done"]

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
