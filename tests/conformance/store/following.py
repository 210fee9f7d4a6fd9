"""Enqueueing: a transition enqueues another job, in the same commit or not at all."""

from __future__ import annotations

import pytest

from holdfast.contracts.effects import Enqueue, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import Status
from holdfast.contracts.transitions import Complete, Expire, Proceed
from tests.conformance.vocabulary import (
    DAY,
    HOUR,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    dead_lettered,
    entry_of,
    lapsed,
    recorded,
    recorded_and_claimed,
    settlement,
    try_claim,
)

ENDS = [Complete(DAY, ()), dead_lettered(), Expire(DAY)]


def follower(key="next", workload=OTHERS, **changes):
    return a_job(key, workload=workload, **changes)


class Following:
    @pytest.mark.parametrize("end", ENDS, ids=[type(end).__name__ for end in ENDS])
    async def test_an_enqueued_job_is_recorded_with_the_transition_and_due_at_once(self, store, end):
        (claim,) = await recorded_and_claimed(store, "k")
        effects = (Upsert("box", "x", {"colour": "blue"}), Enqueue(follower(labels={"of": "k"})))
        transition = type(end)(**{**{name: getattr(end, name) for name in end.__slots__}, "effects": effects})
        await store.settle([settlement(claim, transition)])
        next_one = await entry_of(store, "next", OTHERS)
        assert (next_one.status, next_one.job_id, next_one.labels) == (Status.RECEIVED, "id-next", {"of": "k"})
        assert (await store.get("box", "x"))["colour"] == "blue"
        (due,) = await store.due(OTHERS, 10, again_after=HOUR)
        assert (due.job_id, due.body) == ("id-next", follower().body)

    async def test_a_workload_may_enqueue_its_own_jobs(self, store):
        (claim,) = await recorded_and_claimed(store, "k")
        await store.settle([settlement(claim, Complete(DAY, (Enqueue(follower(workload=THINGS)),)))])
        assert (await claimed(store, "next")).attempt == 1

    async def test_a_job_that_is_known_already_is_left_as_it_is(self, store):
        await recorded(store, "next", workload=OTHERS, body='{"first": true}')
        (claim,) = await recorded_and_claimed(store, "k")
        await store.settle([settlement(claim, Complete(DAY, (Enqueue(follower(fingerprint="another")),)))])
        assert (await entry_of(store, "next", OTHERS)).body == '{"first": true}'
        assert (await entry_of(store)).status is Status.PROCESSED

    async def test_two_transitions_of_one_batch_may_enqueue_the_same_job(self, store):
        claims = await recorded_and_claimed(store, "a", "b")
        answers = await store.settle([settlement(each, Complete(DAY, (Enqueue(follower()),))) for each in claims])
        assert [each.status for each in answers] == [Status.PROCESSED] * 2
        assert len(await store.due(OTHERS, 10, again_after=HOUR)) == 1

    async def test_a_stale_transition_enqueues_nothing(self, harness, store):
        await recorded(store)
        stale = await lapsed(harness, store)
        await try_claim(store, "id-k")
        (answer,) = await store.settle([settlement(stale, Complete(DAY, (Enqueue(follower()),)))])
        assert answer.stale
        assert await store.entry(OTHERS, "next") is None

    async def test_nothing_is_enqueued_beside_a_refused_effect(self, store):
        (claim,) = await recorded_and_claimed(store, "k")
        effects = (Enqueue(follower()), Upsert("no such collection", "x", {}))
        with pytest.raises(EffectRefused):
            await store.settle([settlement(claim, Complete(DAY, effects))])
        assert await store.entry(OTHERS, "next") is None

    async def test_a_job_that_proceeds_may_enqueue_others_too(self, store):
        (claim,) = await recorded_and_claimed(store, "k")
        await store.settle([settlement(claim, Proceed((Enqueue(follower()),), repeatable=True))])
        assert (await entry_of(store, "next", OTHERS)).status is Status.RECEIVED

    async def test_only_transitions_may_enqueue_jobs(self, store):
        with pytest.raises(EffectRefused, match="Only the settlement"):
            await store.apply([Enqueue(follower())])
        with pytest.raises(EffectRefused, match="Only the settlement"):
            await store.record([a_job("with", effects=(Enqueue(follower()),))])
        assert await store.entry(OTHERS, "next") is None
        assert await store.entry(THINGS, "with") is None
