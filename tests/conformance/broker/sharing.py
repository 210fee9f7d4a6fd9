"""Limits that all processes share: permits, and places at even distances in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.contracts.queues import RateLimit
from tests.conformance.broker.deliveries import HOUR

NAME = "the-provider"
MILLISECOND = timedelta(milliseconds=1)


def given(permits):
    return list(permits.given)


class TakingPermits:
    async def test_no_more_permits_are_given_than_there_are(self, harness, broker):
        rate, elsewhere = RateLimit(3, HOUR), await harness.broker()

        first = given(await broker.acquire(NAME, rate, 2, hold=HOUR))
        second = given(await elsewhere.acquire(NAME, rate, 5, hold=HOUR))

        assert (len(first), len(second)) == (2, 1)
        assert len({*first, *second}) == 3
        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_processes_that_acquire_at_once_share_the_permits(self, harness):
        rate = RateLimit(40, HOUR)
        brokers = [await harness.broker() for _ in range(3)]

        answers = await asyncio.gather(*(each.acquire(NAME, rate, 3, hold=HOUR) for each in brokers * 8))

        permits = [permit for answer in answers for permit in given(answer)]
        assert len(permits) == len(set(permits)) == 40

    async def test_a_permit_that_was_released_rests_before_it_is_free(self, broker):
        rate = RateLimit(1, HOUR)
        permits = given(await broker.acquire(NAME, rate, 1, hold=MILLISECOND))

        await broker.release(NAME, rate, permits)

        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_a_permit_that_was_released_is_free_when_it_has_rested(self, harness, broker):
        rate, elsewhere = RateLimit(2, harness.moment), await harness.broker()
        permits = given(await broker.acquire(NAME, rate, 2, hold=HOUR))
        await elsewhere.release(NAME, rate, permits)

        await harness.pass_time(harness.moment + MILLISECOND)

        fresh = given(await broker.acquire(NAME, rate, 5, hold=HOUR))
        assert len(fresh) == 2
        assert not {*fresh} & {*permits}

    async def test_a_permit_is_held_until_it_is_released(self, harness, broker):
        rate = RateLimit(1, MILLISECOND)
        await broker.acquire(NAME, rate, 1, hold=HOUR)

        await harness.pass_time(harness.moment)

        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_the_permit_of_a_holder_that_vanished_is_free_when_it_was_held_and_has_rested(self, harness, broker):
        rate = RateLimit(1, harness.moment)
        await broker.acquire(NAME, rate, 1, hold=harness.moment)

        await harness.pass_time(2 * harness.moment + MILLISECOND)

        assert len(given(await (await harness.broker()).acquire(NAME, rate, 1, hold=HOUR))) == 1

    async def test_the_permit_of_a_holder_that_vanished_rests_too(self, harness, broker):
        rate = RateLimit(1, HOUR)
        await broker.acquire(NAME, rate, 1, hold=MILLISECOND)

        await harness.pass_time(harness.moment)

        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_a_permit_that_was_held_too_long_rests_from_its_late_release(self, harness, broker):
        permits = given(await broker.acquire(NAME, RateLimit(1, HOUR), 1, hold=MILLISECOND))
        await harness.pass_time(harness.moment)

        await broker.release(NAME, RateLimit(1, 3 * HOUR), permits)

        waiting = await broker.acquire(NAME, RateLimit(1, 9 * HOUR), 1, hold=HOUR)
        assert 3 * HOUR - timedelta(minutes=1) < waiting.wait <= 3 * HOUR + MILLISECOND

    async def test_a_late_release_does_not_touch_the_permit_of_another(self, harness, broker):
        rate = RateLimit(1, MILLISECOND)
        late = given(await broker.acquire(NAME, rate, 1, hold=MILLISECOND))
        await harness.pass_time(harness.moment)
        theirs = given(await (await harness.broker()).acquire(NAME, rate, 1, hold=HOUR))

        await broker.release(NAME, rate, late)
        await harness.pass_time(harness.moment)

        assert len(theirs) == 1
        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_a_permit_that_is_free_again_is_not_released(self, harness, broker):
        late = given(await broker.acquire(NAME, RateLimit(1, MILLISECOND), 1, hold=MILLISECOND))
        await harness.pass_time(harness.moment)

        await broker.release(NAME, RateLimit(1, HOUR), late)

        assert len(given(await broker.acquire(NAME, RateLimit(1, HOUR), 1, hold=HOUR))) == 1

    async def test_a_permit_is_released_once(self, harness, broker):
        rate = RateLimit(1, 2 * harness.moment)
        permits = given(await broker.acquire(NAME, rate, 1, hold=HOUR))
        await broker.release(NAME, rate, permits)
        await harness.pass_time(harness.moment)

        await broker.release(NAME, RateLimit(1, HOUR), permits)

        await harness.pass_time(harness.moment + MILLISECOND)
        assert len(given(await broker.acquire(NAME, rate, 1, hold=HOUR))) == 1

    async def test_the_release_of_an_unknown_permit_is_ignored(self, broker):
        rate = RateLimit(1, HOUR)

        await broker.release(NAME, rate, ["never", "given"])
        await broker.release(NAME, rate, [])

        assert len(given(await broker.acquire(NAME, rate, 1, hold=HOUR))) == 1

    async def test_many_permits_are_given_and_released(self, harness, broker):
        rate, permits = RateLimit(450, harness.moment), []
        while answer := given(await broker.acquire(NAME, rate, 450, hold=HOUR)):
            permits += answer

        await broker.release(NAME, rate, permits)
        await harness.pass_time(harness.moment + MILLISECOND)

        assert len(set(permits)) == 450
        again = [await broker.acquire(NAME, rate, 150, hold=HOUR) for _ in range(3)]
        assert [len(given(each)) for each in again] == [150] * 3

    async def test_each_name_has_its_own_permits(self, harness, broker):
        rate = RateLimit(1, harness.moment)
        permits = given(await broker.acquire(NAME, rate, 1, hold=HOUR))

        assert len(given(await broker.acquire("another", rate, 1, hold=HOUR))) == 1
        await broker.release("another", rate, permits)
        await harness.pass_time(harness.moment + MILLISECOND)
        assert given(await broker.acquire(NAME, rate, 1, hold=HOUR)) == []

    async def test_there_is_no_wait_while_permits_are_free(self, broker):
        rate = RateLimit(3, HOUR)

        answers = [await broker.acquire(NAME, rate, wanted, hold=HOUR) for wanted in (0, 2, 1)]

        assert [len(given(each)) for each in answers] == [0, 2, 1]
        assert [each.wait > 0 * MILLISECOND for each in answers] == [False, False, True]

    async def test_the_wait_is_the_soonest_time_at_which_a_held_permit_may_be_free(self, broker):
        rate = RateLimit(1, 2 * HOUR)
        await broker.acquire(NAME, rate, 1, hold=10 * HOUR)

        waiting = await broker.acquire(NAME, rate, 1, hold=HOUR)

        assert 2 * HOUR <= waiting.wait <= 2 * HOUR + MILLISECOND

    async def test_the_wait_ends_when_the_first_resting_permit_is_free(self, broker):
        rate, elsewhere = RateLimit(2, 2 * HOUR), RateLimit(2, HOUR)
        permits = given(await broker.acquire(NAME, rate, 2, hold=HOUR))
        await broker.release(NAME, elsewhere, permits[:1])
        await broker.release(NAME, rate, permits[1:])

        waiting = await broker.acquire(NAME, rate, 1, hold=HOUR)

        assert HOUR - timedelta(minutes=1) < waiting.wait <= HOUR + MILLISECOND

    async def test_a_higher_limit_has_more_permits(self, broker):
        await broker.acquire(NAME, RateLimit(2, HOUR), 2, hold=HOUR)

        assert len(given(await broker.acquire(NAME, RateLimit(5, HOUR), 9, hold=HOUR))) == 3

    async def test_under_a_lower_limit_the_surplus_is_not_given_again(self, harness, broker):
        before, now = RateLimit(3, harness.moment), RateLimit(1, harness.moment)
        first, second, third = given(await broker.acquire(NAME, before, 3, hold=HOUR))

        await broker.release(NAME, now, [first, second])
        await harness.pass_time(harness.moment + MILLISECOND)
        assert given(await broker.acquire(NAME, now, 3, hold=HOUR)) == []

        await broker.release(NAME, now, [third])
        await harness.pass_time(harness.moment + MILLISECOND)
        assert len(given(await broker.acquire(NAME, now, 3, hold=HOUR))) == 1

    async def test_under_a_lower_limit_all_of_the_surplus_is_waited_for(self, broker):
        permits = given(await broker.acquire(NAME, RateLimit(3, HOUR), 3, hold=HOUR))
        for hours, permit in enumerate(permits, start=1):
            await broker.release(NAME, RateLimit(3, hours * HOUR), [permit])

        waiting = await broker.acquire(NAME, RateLimit(2, 9 * HOUR), 1, hold=HOUR)

        assert 2 * HOUR - timedelta(minutes=1) < waiting.wait <= 2 * HOUR + MILLISECOND


class Flowing:
    async def test_jobs_get_places_at_even_distances(self, harness, broker):
        rate = RateLimit(4, 4 * HOUR)

        assert await broker.reserve(NAME, rate, ["a", "b", "c"]) == [0 * HOUR, HOUR, 2 * HOUR]
        b, c, d = await (await harness.broker()).reserve(NAME, rate, ["b", "c", "d"])

        assert HOUR - timedelta(minutes=1) < b <= HOUR
        assert (c - b, d - c) == (HOUR, HOUR)

    async def test_places_may_be_closer_than_a_millisecond(self, broker):
        waits = await broker.reserve(NAME, RateLimit(4_000, timedelta(seconds=1)), [f"j{n}" for n in range(150)])

        assert waits == [n * timedelta(microseconds=250) for n in range(150)]

    async def test_a_job_keeps_its_place_while_it_waits(self, harness, broker):
        rate = RateLimit(1, HOUR)
        _, before = await broker.reserve(NAME, rate, ["a", "b"])

        await harness.pass_time(harness.moment)

        (after,) = await broker.reserve(NAME, rate, ["b"])
        assert HOUR - timedelta(minutes=1) < after <= before - harness.moment

    async def test_a_job_gives_up_its_place_at_its_time_and_needs_another_place_after(self, harness, broker):
        soon, rare = RateLimit(1, harness.moment), RateLimit(1, HOUR)
        assert await broker.reserve(NAME, soon, ["a"]) == [0 * HOUR]
        (wait,) = await broker.reserve(NAME, soon, ["b"])
        await broker.reserve(NAME, rare, ["c"])

        await harness.pass_time(wait)

        assert wait <= harness.moment
        assert await broker.reserve(NAME, rare, ["b"]) == [0 * HOUR]
        (again,) = await broker.reserve(NAME, rare, ["b"])
        assert again > HOUR - timedelta(minutes=1)

    async def test_unused_places_are_not_saved_up(self, harness, broker):
        rate = RateLimit(1, harness.moment)
        await broker.reserve(NAME, rate, ["a"])

        await harness.pass_time(3 * harness.moment)

        assert await broker.reserve(NAME, rate, ["b", "c"]) == [0 * HOUR, harness.moment]

    async def test_a_job_that_comes_after_its_time_does_not_wait(self, harness, broker):
        rate = RateLimit(1, harness.moment)
        await broker.reserve(NAME, rate, ["a", "b"])

        await harness.pass_time(2 * harness.moment)

        assert await broker.reserve(NAME, rate, ["b"]) == [0 * HOUR]

    async def test_processes_that_ask_at_once_never_share_a_place(self, harness):
        rate = RateLimit(1, HOUR)
        brokers = [await harness.broker() for _ in range(3)]

        answers = await asyncio.gather(
            *(each.reserve(NAME, rate, [f"{n}-a", f"{n}-b"]) for n, each in enumerate(brokers * 5))
        )

        places = sorted(round(wait / HOUR) for answer in answers for wait in answer)
        assert places == list(range(30))

    async def test_any_number_of_jobs_may_ask_together(self, broker):
        waits = await broker.reserve(NAME, RateLimit(1, HOUR), [f"j{n}" for n in range(450)])

        assert [round(wait / HOUR) for wait in waits] == list(range(450))
        assert await broker.reserve(NAME, RateLimit(1, HOUR), []) == []

    async def test_a_job_that_is_named_twice_in_one_call_gets_two_answers(self, broker):
        assert await broker.reserve(NAME, RateLimit(1, HOUR), ["a", "b", "b", "a"]) == [0 * HOUR, HOUR, HOUR, 2 * HOUR]

    async def test_each_name_has_its_own_places(self, broker):
        rate = RateLimit(1, HOUR)
        await broker.reserve(NAME, rate, ["a", "b"])

        assert await broker.reserve("another", rate, ["b", "a"]) == [0 * HOUR, HOUR]
