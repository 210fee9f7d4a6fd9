"""Settling: what a transition writes. Only the transition of the lease's holder counts (I4, I5, I7, I8, I12)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import AttemptOutcome, Lease, NotNow, Status
from holdfast.contracts.transitions import Expire, Proceed, Release, Settlement
from tests.conformance.store.claiming import outcomes
from tests.conformance.vocabulary import (
    AWKWARD,
    DAY,
    HOUR,
    THINGS,
    a_job,
    claimed,
    completed,
    dead_lettered,
    entry_of,
    letter_of,
    recorded,
    recorded_and_claimed,
    retried,
    settled,
    settlement,
    try_claim,
)

SUCCEEDED, FAILED, LOST = AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED, AttemptOutcome.LOST

ENDS = [completed(), retried(), Release(), dead_lettered(), Expire(DAY)]
TRANSITIONS = [*ENDS, Proceed()]


class Settling:
    async def test_a_completed_job_is_processed(self, store):
        await recorded(store)
        claim = await claimed(store)
        before = await store.now()
        answer = await settled(store, claim, completed(retention=30 * DAY, result={"at": [1, "é"]}))
        after = await store.now()

        entry = await entry_of(store)
        assert (answer.status, answer.note) == (Status.PROCESSED, None)
        assert (entry.status, entry.result, entry.note) == (Status.PROCESSED, {"at": [1, "é"]}, None)
        assert before + 30 * DAY <= entry.expires_at <= after + 30 * DAY
        assert before <= entry.updated_at <= after
        assert entry.lease_until is None
        (attempt,) = entry.attempts
        assert (attempt.outcome, attempt.error_code, attempt.error_message) == (SUCCEEDED, None, None)
        assert before <= attempt.finished_at <= after

    async def test_a_job_to_retry_has_failed_for_now(self, store):
        await recorded(store)
        claim = await claimed(store)
        before = await store.now()
        answer = await settled(store, claim, retried(HOUR, "HTTP_503", AWKWARD))
        after = await store.now()

        entry = await entry_of(store)
        assert (answer.status, entry.status) == (Status.FAILED, Status.FAILED)
        assert (entry.last_error_code, entry.last_error_message) == ("HTTP_503", AWKWARD)
        assert before + HOUR <= entry.not_before <= after + HOUR
        assert (entry.expires_at, entry.lease_until) == (None, None)
        (attempt,) = entry.attempts
        assert (attempt.outcome, attempt.error_code, attempt.error_message) == (FAILED, "HTTP_503", AWKWARD)
        assert before <= attempt.finished_at <= after

    async def test_a_job_that_is_released_was_never_tried(self, store):
        await recorded(store)

        answer = await settled(store, await claimed(store), Release())

        entry = await entry_of(store)
        assert (answer.status, entry.status, entry.attempts) == (Status.RECEIVED, Status.RECEIVED, ())
        assert (entry.lease_until, entry.expires_at, entry.last_error_code) == (None, None, None)
        assert (await claimed(store)).attempt == 1

    async def test_a_retried_job_that_is_released_has_failed_as_before(self, store):
        await recorded(store)
        await settled(store, await claimed(store), retried(code="HTTP_503"))
        failed = await entry_of(store)

        answer = await settled(store, await claimed(store), Release())

        entry = await entry_of(store)
        assert (answer.status, entry.status, entry.attempts) == (Status.FAILED, Status.FAILED, failed.attempts)
        assert (entry.last_error_code, entry.last_error_message) == ("HTTP_503", failed.last_error_message)
        assert (await claimed(store)).attempt == 2

    async def test_a_job_can_be_released_with_a_delay(self, harness, store):
        await recorded(store)
        await settled(store, await claimed(store), Release(harness.moment))
        assert isinstance((await try_claim(store, "id-k"))[0], NotNow)

        await harness.pass_time(harness.moment)

        assert (await claimed(store)).attempt == 1

    async def test_the_note_of_a_release_says_why_the_job_waits(self, store):
        await recorded(store)

        answer = await settled(store, await claimed(store), Release(note=AWKWARD))

        assert (answer.status, answer.note) == (Status.RECEIVED, AWKWARD)
        assert (await entry_of(store)).note == AWKWARD
        await settled(store, await claimed(store), Release())
        assert (await entry_of(store)).note is None

    async def test_every_failed_attempt_keeps_its_traceback(self, store):
        await recorded(store)
        await settled(store, await claimed(store), replace(retried(), traceback=f"first {AWKWARD}"))
        await settled(store, await claimed(store), retried())
        await settled(store, await claimed(store), dead_lettered(traceback=f"last {AWKWARD}"))

        entry, letter = await entry_of(store), await letter_of(store, dead_lettered().letter_id)

        assert [each.traceback for each in entry.attempts] == [f"first {AWKWARD}", None, f"last {AWKWARD}"]
        assert letter.attempts == entry.attempts

    async def test_a_traceback_without_an_open_attempt_is_not_kept(self, store):
        await recorded(store)
        await settled(store, await claimed(store), retried())
        (claim,) = await try_claim(store, "id-k", max_attempts=1)

        await settled(store, claim, dead_lettered(traceback="nobody's"))

        assert [each.traceback for each in (await entry_of(store)).attempts] == [None]

    async def test_an_expired_job_is_over(self, store):
        await recorded(store)
        claim = await claimed(store)
        before = await store.now()
        answer = await settled(store, claim, Expire(DAY, [Upsert("box", "x", {"colour": "grey"})]))
        after = await store.now()

        entry = await entry_of(store)
        assert (answer.status, entry.status) == (Status.EXPIRED, Status.EXPIRED)
        assert outcomes(entry) == [FAILED]
        assert before + DAY <= entry.expires_at <= after + DAY
        assert (await store.get("box", "x"))["colour"] == "grey"

    async def test_a_dead_lettered_job_leaves_a_letter_with_the_whole_history(self, harness, store):
        job = await recorded(store, labels={"colour": "red", "traceId": "t-1"}, body=AWKWARD)
        await settled(store, await claimed(store, worker="w-1"), retried(code="HTTP_503"))
        await claimed(store, worker="w-2", lease=harness.moment)
        await harness.pass_time(harness.moment)
        claim = await claimed(store, worker="w-3")
        before = await store.now()
        transition = dead_lettered(code="HTTP_404", message=AWKWARD, reason_code="REFUSED", reason_message=AWKWARD)
        answer = await settled(store, claim, transition)
        after = await store.now()

        entry, letter = await entry_of(store), await letter_of(store, transition.letter_id)
        assert (answer.status, entry.status) == (Status.DEAD_LETTERED, Status.DEAD_LETTERED)
        assert (entry.last_error_code, entry.last_error_message) == ("HTTP_404", AWKWARD)
        assert (letter.id, letter.workload, letter.key, letter.job_id) == (
            transition.letter_id,
            THINGS,
            job.key,
            job.job_id,
        )
        assert (letter.generation, letter.body, letter.labels) == (1, job.body, job.labels)
        assert (letter.reason_code, letter.reason_message) == ("REFUSED", AWKWARD)
        assert (letter.attempt_count, letter.attempts) == (3, entry.attempts)
        assert [(each.outcome, each.worker) for each in letter.attempts] == [
            (FAILED, "w-1"),
            (LOST, "w-2"),
            (FAILED, "w-3"),
        ]
        assert (letter.attempts[0].error_code, letter.attempts[2].error_code) == ("HTTP_503", "HTTP_404")
        assert (letter.review_status, letter.decisions, letter.replayed_as) == (ReviewStatus.PENDING, (), None)
        assert before <= letter.created_at <= after
        assert letter.expires_at - letter.created_at == DAY

    @pytest.mark.parametrize(("retention", "letter_retention"), [(DAY, 90 * DAY), (90 * DAY, DAY)])
    async def test_an_entry_is_never_forgotten_before_its_letter(self, store, retention, letter_retention):
        await recorded(store)
        transition = dead_lettered(retention=retention, letter_retention=letter_retention)
        claim, before = await claimed(store), await store.now()
        await settled(store, claim, transition)
        after = await store.now()

        entry, letter = await entry_of(store), await letter_of(store, transition.letter_id)

        assert letter.expires_at - letter.created_at == letter_retention
        assert before + 90 * DAY <= entry.expires_at <= after + 90 * DAY
        assert entry.expires_at >= letter.expires_at

    @pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda transition: type(transition).__name__)
    async def test_a_worker_that_lost_its_job_settles_nothing(self, harness, store, transition):
        await recorded(store)
        stale = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)
        await claimed(await harness.store(), worker="worker-2")
        held = await entry_of(store)
        transition = replace(transition, effects=[Upsert("box", "x", {"colour": "red"})])

        (answer,) = await store.settle([settlement(stale, transition)])

        assert (answer.job_id, answer.stale, answer.status, answer.note) == ("id-k", True, None, None)
        assert await entry_of(store) == held
        assert await store.get("box", "x") is None
        assert await store.letter(dead_lettered().letter_id) is None

    @pytest.mark.parametrize("transition", ENDS, ids=lambda transition: type(transition).__name__)
    async def test_a_job_is_settled_once(self, store, transition):
        await recorded(store)
        claim = await claimed(store)
        await settled(store, claim, transition)
        stands = await entry_of(store)

        for second in TRANSITIONS:
            (answer,) = await store.settle([settlement(claim, second)])
            assert answer.stale

        assert await entry_of(store) == stands

    @pytest.mark.parametrize("second", TRANSITIONS, ids=lambda transition: type(transition).__name__)
    async def test_of_two_transitions_in_one_batch_the_first_counts(self, store, second):
        await recorded(store)
        claim = await claimed(store)
        first = completed(Upsert("box", "x", {"colour": "first"}))
        second = replace(second, effects=[Upsert("box", "x", {"colour": "second"})])

        answers = await store.settle([settlement(claim, first), settlement(claim, second)])

        assert [answer.status for answer in answers] == [Status.PROCESSED, None]
        assert (await entry_of(store)).status is Status.PROCESSED
        assert (await store.get("box", "x"))["colour"] == "first"
        assert await store.letter(dead_lettered().letter_id) is None

    async def test_a_lease_that_never_was_settles_nothing(self, store):
        await recorded(store)
        claim = await claimed(store)
        strange = [
            Settlement(THINGS, Lease("id-never", 1), completed()),
            Settlement(THINGS, Lease("id-k", claim.fence + 1), completed()),
            Settlement("others", Lease("id-k", claim.fence), completed()),
        ]

        assert [answer.stale for answer in await store.settle(strange)] == [True, True, True]
        assert (await entry_of(store)).status is Status.PROCESSING

    async def test_a_job_that_nobody_claimed_cannot_be_settled(self, store):
        await recorded(store)
        fence = (await entry_of(store)).fence

        (answer,) = await store.settle([Settlement(THINGS, Lease("id-k", fence), completed())])

        assert answer.stale
        assert (await entry_of(store)).status is Status.RECEIVED

    async def test_a_stale_transition_holds_back_no_neighbour(self, harness, store):
        await store.record([a_job(key) for key in ("a", "b", "c", "d")])
        stale = await claimed(store, "b", lease=harness.moment)
        await harness.pass_time(harness.moment)
        await claimed(store, "b")
        a, c, d = [await claimed(store, key) for key in ("a", "c", "d")]

        answers = await store.settle(
            [
                settlement(a, dead_lettered("a")),
                settlement(stale, completed()),
                settlement(c, retried()),
                settlement(d, completed()),
            ],
        )

        assert [(answer.job_id, answer.status) for answer in answers] == [
            ("id-a", Status.DEAD_LETTERED),
            ("id-b", None),
            ("id-c", Status.FAILED),
            ("id-d", Status.PROCESSED),
        ]

    async def test_an_empty_batch_settles_nothing(self, store):
        assert await store.settle([]) == []

    async def test_many_jobs_are_settled_at_once(self, store):
        await store.record([a_job(f"k{n}") for n in range(1000)])
        claims = await try_claim(store, *(f"id-k{n}" for n in range(1000)))
        transitions = [completed(), retried(), Release(), Expire(DAY)]
        batch = [
            settlement(claim, dead_lettered(claim.key) if number % 5 == 4 else transitions[number % 5])
            for number, claim in enumerate(claims)
        ]

        answers = await store.settle(batch)

        assert [answer.job_id for answer in answers] == [claim.job_id for claim in claims]
        assert await store.counts(THINGS) == {
            "processed": 200,
            "failed": 200,
            "received": 200,
            "expired": 200,
            "dead_lettered": 200,
        }

    async def test_of_two_settlers_of_one_lease_one_counts(self, harness, store):
        elsewhere = await harness.store()
        claims = await recorded_and_claimed(store, *(f"k{n}" for n in range(20)))
        for claim in claims:
            here, there = await asyncio.gather(
                store.settle([settlement(claim, completed(Upsert("box", claim.key, {"colour": "here"})))]),
                elsewhere.settle([settlement(claim, dead_lettered(claim.key))]),
            )

            statuses = {here[0].status, there[0].status}
            record, letter = (
                await store.get("box", claim.key),
                await store.letter(dead_lettered(claim.key).letter_id),
            )
            assert statuses in ({Status.PROCESSED, None}, {Status.DEAD_LETTERED, None})
            assert (record is None) == (Status.PROCESSED not in statuses)
            assert (letter is None) == (Status.DEAD_LETTERED not in statuses)
            assert (await entry_of(store, claim.key)).status in statuses
