"""Fairness keys: the last place of each key, and the place in work."""

from __future__ import annotations

from holdfast.contracts.ledger import QueuePlaces
from holdfast.contracts.transitions import Expire, Proceed, Release
from tests.conformance.vocabulary import (
    DAY,
    HOUR,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead_and_reviewed,
    dead_lettered,
    lapsed,
    retried,
    settled,
)


def jobs_at(fairness_key, *places, **changes):
    """Jobs with this fairness key, one at each place."""
    return [a_job(f"{fairness_key}{place}", fairness_key=fairness_key, priority=place, **changes) for place in places]


class FairnessKeys:
    async def test_there_are_no_places_at_first(self, store):
        await store.record([a_job("k", priority=9)])

        assert await store.queue_places(THINGS, ["a", "b"]) == QueuePlaces(0, {})
        assert await store.queue_places(THINGS, []) == QueuePlaces(0, {})
        assert await store.queue_places("no-such-workload", ["a"]) == QueuePlaces(0, {})

    async def test_a_fairness_key_ends_with_its_last_unsettled_job(self, harness, store):
        await store.record([*jobs_at("a", 3, 1, 7), *jobs_at("b", 5), *jobs_at("c", 2, delay=HOUR)])

        elsewhere = await harness.store()
        assert await elsewhere.queue_places(THINGS, ["a", "b", "c", "d"]) == QueuePlaces(1, {"a": 7, "b": 5, "c": 2})
        assert await elsewhere.queue_places(THINGS, ["b"]) == QueuePlaces(1, {"b": 5})
        assert await elsewhere.queue_places(THINGS, ["a", "a"]) == QueuePlaces(1, {"a": 7})

    async def test_jobs_that_wait_again_keep_their_places(self, store):
        await store.record(jobs_at("a", 1, 2, 3))
        await settled(store, await claimed(store, "a3"), retried(HOUR))
        assert (await store.queue_places(THINGS, ["a"])).ends == {"a": 3}

        await settled(store, await claimed(store, "a2"), Release())

        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(1, {"a": 3})

    async def test_settled_jobs_have_no_places(self, store):
        await store.record(jobs_at("a", 1, 2, 3, 4))
        for place, transition in ((4, completed()), (3, dead_lettered("a3")), (2, Expire(DAY))):
            claim = await claimed(store, f"a{place}")
            assert (await store.queue_places(THINGS, ["a"])).ends == {"a": place}
            await settled(store, claim, transition)
            assert (await store.queue_places(THINGS, ["a"])).ends == {"a": place - 1}
        await settled(store, await claimed(store, "a1"), completed())

        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(0, {})

    async def test_the_front_is_the_greatest_place_in_work(self, harness, store):
        await store.record([*jobs_at("a", 1, 4, 9), *jobs_at("b", 6), a_job("k", priority=50)])
        await claimed(store, "k")
        await claimed(store, "a1")
        assert (await store.queue_places(THINGS, [])).front == 1

        ahead = await claimed(store, "b6")
        await settled(store, await claimed(store, "a4"), Proceed())

        assert await (await harness.store()).queue_places(THINGS, ["a", "b"]) == QueuePlaces(6, {"a": 9, "b": 6})
        await settled(store, ahead, completed())
        assert await store.queue_places(THINGS, ["a", "b"]) == QueuePlaces(4, {"a": 9})

    async def test_while_nothing_is_in_work_the_front_is_what_comes_next(self, harness, store):
        await store.record([*jobs_at("a", 9, 12), *jobs_at("b", 7), a_job("k", priority=2)])
        assert (await (await harness.store()).queue_places(THINGS, [])).front == 7
        await settled(store, await claimed(store, "b7"), retried(HOUR))
        assert await store.queue_places(THINGS, ["a", "b"]) == QueuePlaces(9, {"a": 12, "b": 7})
        await claimed(store, "a12")
        assert (await store.queue_places(THINGS, [])).front == 12

    async def test_a_lost_job_is_in_work_until_somebody_takes_it(self, harness, store):
        await store.record(jobs_at("a", 3))
        await lapsed(harness, store, "a3")

        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(3, {"a": 3})

    async def test_fairness_keys_belong_to_their_workload(self, store):
        await store.record([*jobs_at("a", 1), *jobs_at("a", 8, workload=OTHERS)])
        await claimed(store, "a8", workload=OTHERS)

        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(1, {"a": 1})
        assert await store.queue_places(OTHERS, ["a"]) == QueuePlaces(8, {"a": 8})

    async def test_a_replayed_job_has_its_place_again(self, store):
        letter = await dead_and_reviewed(store, "k", fairness_key="a", priority=5)
        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(0, {})

        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert await store.queue_places(THINGS, ["a"]) == QueuePlaces(5, {"a": 5})

    async def test_fairness_keys_differ_by_their_whole_names(self, store):
        names = ["a", "A", "a ", "", "é", "e\u0301", "$a", "a.b", "%"]
        await store.record(
            [
                a_job(f"k{place}", fairness_key=fairness_key, priority=place)
                for place, fairness_key in enumerate(names, start=1)
            ]
        )

        assert (await store.queue_places(THINGS, names)).ends == {
            fairness_key: place for place, fairness_key in enumerate(names, start=1)
        }

    async def test_unsettled_jobs_are_counted_by_the_beginning_of_their_keys(self, harness, store):
        await store.record([*jobs_at("a/0", 1, 2, 3), *jobs_at("a/5", 4), *jobs_at("a/0", 9, workload=OTHERS)])
        await store.record([*jobs_at("a", 1), *jobs_at("a0", 1), *jobs_at("A/0", 1), *jobs_at("b/0", 1), a_job("k")])
        await claimed(store, "a/01")
        await settled(store, await claimed(store, "a/02"), retried(HOUR))

        elsewhere = await harness.store()
        assert await elsewhere.count_unsettled("a/", 100) == 5
        assert await elsewhere.count_unsettled("b/", 100) == 1
        assert await elsewhere.count_unsettled("c/", 100) == 0

        await settled(store, await claimed(store, "a/03"), completed())
        await settled(store, await claimed(store, "a/54"), Expire(DAY))
        assert await elsewhere.count_unsettled("a/", 100) == 3

    async def test_counting_stops_at_the_limit(self, store):
        await store.record([*jobs_at("a/0", *range(20)), *jobs_at("a/0", *range(50, 60), workload=OTHERS)])

        assert [await store.count_unsettled("a/", most) for most in (1, 19, 25, 30, 31)] == [1, 19, 25, 30, 30]

    async def test_many_fairness_keys_are_looked_up_at_once(self, store):
        await store.record([a_job(f"k{n}", fairness_key=f"key {n % 200}", priority=n + 1) for n in range(1000)])

        places = await store.queue_places(THINGS, [f"key {n}" for n in range(300)])

        assert places == QueuePlaces(1, {f"key {n}": 801 + n for n in range(200)})
