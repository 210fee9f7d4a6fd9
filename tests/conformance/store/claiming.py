"""Claiming and renewing: one worker at a time, and every attempt is counted (I4, I5, I6, I10)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.ledger import (
    AlreadySettled,
    AttemptOutcome,
    Claimed,
    Exhausted,
    Lease,
    NotNow,
    Overdue,
    Status,
    Unrecorded,
)
from holdfast.contracts.transitions import Expire, Release
from tests.conformance.vocabulary import (
    AWKWARD,
    DAY,
    HOUR,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead_lettered,
    entry_of,
    letter_of,
    recorded,
    retried,
    settled,
    settlement,
    try_claim,
)

RUNNING, LOST, FAILED = AttemptOutcome.RUNNING, AttemptOutcome.LOST, AttemptOutcome.FAILED


def outcomes(record):
    return [attempt.outcome for attempt in record.attempts]


class Claiming:
    async def test_a_claim_takes_the_job_into_work(self, store):
        job = await recorded(store, ttl=DAY)
        before = await store.now()
        (claim,) = await try_claim(store, job.job_id, worker="worker-7", lease=HOUR)
        after = await store.now()

        entry = await entry_of(store)
        assert isinstance(claim, Claimed)
        assert (claim.job_id, claim.key, claim.body, claim.labels) == (job.job_id, job.key, job.body, job.labels)
        assert (claim.generation, claim.attempt, claim.fence) == (1, 1, entry.fence)
        assert (claim.first_seen_at, claim.deadline) == (entry.first_seen_at, entry.deadline)
        assert entry.status is Status.PROCESSING
        assert before + HOUR <= entry.lease_until <= after + HOUR
        (attempt,) = entry.attempts
        assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, RUNNING, "worker-7")
        assert before <= attempt.started_at <= after
        assert attempt.finished_at is None

    async def test_a_job_that_nobody_recorded_is_unrecorded(self, store):
        await recorded(store)

        assert await try_claim(store, "id-x", "") == [Unrecorded("id-x"), Unrecorded("")]
        assert await try_claim(store, "id-k", workload=OTHERS) == [Unrecorded("id-k")]
        assert (await entry_of(store)).status is Status.RECEIVED

    async def test_answers_come_in_the_order_of_the_question(self, store):
        await store.record([a_job("a"), a_job("b"), a_job("c", delay=HOUR), a_job("d")])
        await settled(store, await claimed(store, "b"), completed())

        answers = await try_claim(store, "id-d", "id-c", "id-x", "id-b", "id-a")

        assert [answer.job_id for answer in answers] == ["id-d", "id-c", "id-x", "id-b", "id-a"]
        assert [type(answer) for answer in answers] == [Claimed, NotNow, Unrecorded, AlreadySettled, Claimed]

    async def test_an_empty_batch_claims_nothing(self, store):
        assert await try_claim(store) == []

    async def test_many_jobs_are_claimed_at_once(self, store):
        await store.record([a_job(f"k{n}") for n in range(1000)])

        claims = await try_claim(store, *(f"id-k{n}" for n in range(1000)))

        assert [claim.key for claim in claims] == [f"k{n}" for n in range(1000)]
        assert await store.counts(THINGS) == {"processing": 1000}

    async def test_a_job_that_is_held_is_not_given_to_another(self, harness, store):
        await recorded(store)
        await claimed(store, lease=HOUR)
        held = await entry_of(store)

        (answer,) = await try_claim(await harness.store(), "id-k", worker="worker-2")

        assert isinstance(answer, NotNow)
        assert timedelta(0) < answer.after <= HOUR
        assert await entry_of(store) == held

    async def test_a_delayed_job_waits_for_its_time(self, harness, store):
        await recorded(store, delay=harness.moment)
        (answer,) = await try_claim(store, "id-k")
        assert isinstance(answer, NotNow)
        assert timedelta(0) < answer.after <= harness.moment

        await harness.pass_time(answer.after)

        assert (await claimed(store)).attempt == 1

    async def test_a_retry_waits_for_its_time(self, harness, store):
        await recorded(store)
        await settled(store, await claimed(store), retried(harness.moment))
        (answer,) = await try_claim(store, "id-k")
        assert isinstance(answer, NotNow)
        assert timedelta(0) < answer.after <= harness.moment
        assert (await entry_of(store)).status is Status.FAILED

        await harness.pass_time(answer.after)

        claim = await claimed(store)
        assert claim.attempt == 2
        assert outcomes(await entry_of(store)) == [FAILED, RUNNING]

    async def test_the_fence_rises_with_every_claim(self, harness, store):
        await recorded(store)
        fences = []
        for transition in (Release(), retried(), None, retried()):
            claim = await claimed(store, lease=harness.moment)
            fences.append(claim.fence)
            if transition is None:
                await harness.pass_time(harness.moment)
            else:
                await settled(store, claim, transition)

        assert fences == sorted(set(fences))

    async def test_a_lapsed_lease_is_taken_over_and_the_orphan_is_closed_as_lost(self, harness, store):
        await recorded(store)
        first = await claimed(store, worker="worker-1", lease=harness.moment)
        await harness.pass_time(harness.moment)
        before = await store.now()

        second = await claimed(await harness.store(), worker="worker-2")

        assert (second.attempt, second.fence > first.fence) == (2, True)
        orphan, running = (await entry_of(store)).attempts
        assert (orphan.outcome, orphan.worker, running.outcome, running.worker) == (
            LOST,
            "worker-1",
            RUNNING,
            "worker-2",
        )
        assert orphan.finished_at >= before
        assert orphan.error_code

    async def test_a_job_that_kills_its_workers_is_exhausted(self, harness, store):
        job = await recorded(store)
        for _ in range(2):
            last = await claimed(store, lease=harness.moment, max_attempts=2)
            await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k", max_attempts=2)

        assert isinstance(answer, Exhausted)
        assert (answer.job_id, answer.key, answer.generation, answer.attempt) == ("id-k", "k", 1, 2)
        assert (answer.fence > last.fence, answer.body) == (True, job.body)
        assert outcomes(await entry_of(store)) == [LOST, LOST]
        await settled(store, answer, dead_lettered())
        assert outcomes(await letter_of(store, dead_lettered().letter_id)) == [LOST, LOST]
        assert (await entry_of(store)).status is Status.DEAD_LETTERED

    async def test_an_exhausted_job_is_held_like_any_other(self, harness, store):
        await recorded(store)
        await settled(store, await claimed(store), retried())
        (answer,) = await try_claim(store, "id-k", max_attempts=1)
        assert isinstance(answer, Exhausted)

        (second,) = await try_claim(await harness.store(), "id-k", max_attempts=1)

        assert isinstance(second, NotNow)

    async def test_an_overdue_job_is_claimed_to_be_expired(self, harness, store):
        job = await recorded(store, ttl=harness.moment)
        await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k")

        assert isinstance(answer, Overdue)
        assert (answer.job_id, answer.key, answer.generation, answer.body) == ("id-k", "k", 1, job.body)
        assert (await entry_of(store)).attempts == ()
        await settled(store, answer, Expire(DAY))
        assert (await entry_of(store)).status is Status.EXPIRED

    async def test_a_delayed_job_past_its_deadline_does_not_wait(self, harness, store):
        await store.record([a_job("failed", ttl=harness.moment), a_job("delayed", ttl=harness.moment, delay=HOUR)])
        await settled(store, await claimed(store, "failed"), retried(HOUR))
        await harness.pass_time(harness.moment)

        answers = await try_claim(store, "id-failed", "id-delayed")

        assert [type(answer) for answer in answers] == [Overdue, Overdue]
        assert outcomes(await entry_of(store, "failed")) == [FAILED]

    async def test_a_job_in_work_is_left_to_its_worker_past_its_deadline(self, harness, store):
        await recorded(store, ttl=harness.moment)
        await claimed(store, lease=HOUR)
        await harness.pass_time(harness.moment)

        assert isinstance((await try_claim(store, "id-k"))[0], NotNow)

    async def test_a_lost_job_that_is_overdue_is_not_tried_again(self, harness, store):
        await recorded(store, ttl=harness.moment)
        await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k")

        assert isinstance(answer, Overdue)
        assert outcomes(await entry_of(store)) == [LOST]

    @pytest.mark.parametrize(
        ("transition", "status"),
        [
            (completed(), Status.PROCESSED),
            (dead_lettered(), Status.DEAD_LETTERED),
            (Expire(DAY), Status.EXPIRED),
        ],
    )
    async def test_a_settled_job_is_not_claimed(self, store, transition, status):
        await recorded(store)
        await settled(store, await claimed(store), transition)
        stands = await entry_of(store)

        assert await try_claim(store, "id-k") == [AlreadySettled("id-k", status)]
        assert await entry_of(store) == stands

    async def test_a_claim_of_a_settled_job_repermits_its_result(self, store):
        await store.record([a_job("a"), a_job("b"), a_job("c")])
        result = {"said": AWKWARD, "places": [1, {"deep": None}]}
        await settled(store, await claimed(store, "a"), completed(result=result))
        await settled(store, await claimed(store, "b"), completed())

        answers = await try_claim(store, "id-a", "id-b", "id-c")

        assert answers[:2] == [
            AlreadySettled("id-a", Status.PROCESSED, result),
            AlreadySettled("id-b", Status.PROCESSED),
        ]
        assert isinstance(answers[2], Claimed)

    async def test_a_job_that_is_asked_for_twice_at_once_is_given_once(self, store):
        await store.record([a_job("a"), a_job("b")])

        answers = await try_claim(store, "id-a", "id-b", "id-a")

        assert [type(answer) for answer in answers] == [Claimed, Claimed, NotNow]
        assert (await entry_of(store, "a")).attempt_count == 1

    async def test_of_two_workers_that_race_for_a_job_one_gets_it(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(40)])
        for number in range(40):
            answers = await asyncio.gather(
                *(try_claim(racer, f"id-k{number}") for racer in (store, elsewhere, store, elsewhere)),
            )

            kinds = sorted(type(answer).__name__ for (answer,) in answers)
            assert kinds == ["Claimed", "NotNow", "NotNow", "NotNow"]
            assert (await entry_of(store, f"k{number}")).attempt_count == 1

    async def test_of_two_workers_that_race_for_an_orphan_one_gets_it(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(20)])
        await try_claim(store, *(f"id-k{n}" for n in range(20)), lease=timedelta(milliseconds=1))
        await harness.pass_time(harness.moment)
        job_ids = [f"id-k{n}" for n in range(20)]

        here, there = await asyncio.gather(try_claim(store, *job_ids), try_claim(elsewhere, *reversed(job_ids)))

        for mine, theirs in zip(here, reversed(there), strict=True):
            assert {type(mine), type(theirs)} == {Claimed, NotNow}
            assert (await entry_of(store, mine.job_id.removeprefix("id-"))).attempt_count == 2


class Renewing:
    async def test_a_renewed_lease_holds_for_longer(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=harness.moment)
        before = await store.now()

        assert await store.renew(THINGS, [Lease(claim.job_id, claim.fence)], HOUR) == []

        assert (await entry_of(store)).lease_until >= before + HOUR
        await harness.pass_time(harness.moment)
        assert isinstance((await try_claim(store, "id-k"))[0], NotNow)

    async def test_a_lease_counts_from_now_and_may_become_shorter(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=DAY)

        assert await store.renew(THINGS, [Lease(claim.job_id, claim.fence)], harness.moment) == []

        await harness.pass_time(harness.moment)
        assert (await claimed(store)).attempt == 2

    async def test_a_lapsed_lease_that_nobody_took_is_still_ours(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)

        assert await store.renew(THINGS, [Lease(claim.job_id, claim.fence)], HOUR) == []
        assert isinstance((await try_claim(store, "id-k"))[0], NotNow)

    async def test_leases_that_are_no_longer_ours_are_returned(self, harness, store):
        keys = ("ours", "taken", "done", "back")
        await store.record([a_job(key) for key in keys])
        claims = await try_claim(store, *(f"id-{key}" for key in keys), lease=harness.moment)
        leases = {key: Lease(claim.job_id, claim.fence) for key, claim in zip(keys, claims, strict=True)}
        await store.settle([settlement(claims[2], completed()), settlement(claims[3], Release())])
        await harness.pass_time(harness.moment)
        taken = await claimed(store, "taken", worker="worker-2", lease=HOUR)
        held = await entry_of(store, "taken")
        strange = [Lease("id-never", 1), Lease("id-taken", taken.fence + 1)]

        lost = await store.renew(THINGS, [*leases.values(), *strange], DAY)

        assert lost == [leases["taken"], leases["done"], leases["back"], *strange]
        assert await entry_of(store, "taken") == held

    async def test_an_old_lease_is_lost_beside_the_new_one(self, harness, store):
        await recorded(store)
        first = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)
        second = await claimed(store)
        old, new = Lease(first.job_id, first.fence), Lease(second.job_id, second.fence)

        assert await store.renew(THINGS, [old, new], HOUR) == [old]

    async def test_a_lease_belongs_to_its_workload(self, store):
        await recorded(store)
        claim = await claimed(store)

        assert await store.renew(OTHERS, [Lease(claim.job_id, claim.fence)], HOUR) == [Lease("id-k", claim.fence)]
