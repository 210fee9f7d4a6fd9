"""Proceeding: after its point of no return, a job is never run again automatically (I10, I11)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.contracts.effects import IGNORED_STALE, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import AttemptOutcome, Claimed, Interrupted, Lease, NotNow, Status
from holdfast.contracts.transitions import OVERDUE, Expire, Proceed, Release, Settled
from tests.conformance.store.claiming import outcomes
from tests.conformance.vocabulary import (
    DAY,
    HOUR,
    THINGS,
    a_job,
    claimed,
    completed,
    dead_lettered,
    entry_of,
    lapsed,
    letter_of,
    recorded,
    recorded_and_claimed,
    retried,
    settled,
    settlement,
    try_claim,
)

RUNNING, LOST, FAILED = AttemptOutcome.RUNNING, AttemptOutcome.LOST, AttemptOutcome.FAILED

SENDING = Upsert("box", "x", {"colour": "sending"})
SENT = Upsert("box", "x", {"colour": "sent"})

ENDS = [completed(), retried(), Release(), dead_lettered(), Expire(DAY)]
NAMES = [type(end).__name__ for end in ENDS]
STATUSES = [Status.PROCESSED, Status.FAILED, Status.RECEIVED, Status.DEAD_LETTERED, Status.EXPIRED]
ENDINGS = list(zip(ENDS, STATUSES, strict=True))


async def proceeded(store, claim, *effects, **options):
    """The job passes its point of no return."""
    (answer,) = await store.settle([settlement(claim, Proceed(effects, **options))])
    assert answer == Settled(claim.job_id, Status.PROCESSING, None)


async def interrupted(harness, store, key="k"):
    """A job whose worker vanished after the point of no return; we have claimed it."""
    claim = await claimed(store, key, lease=harness.moment)
    await proceeded(store, claim)
    await harness.pass_time(harness.moment)
    (answer,) = await try_claim(store, claim.job_id)
    assert isinstance(answer, Interrupted)
    return answer


class Proceeding:
    async def test_a_job_that_proceeds_stays_in_work_with_its_effects_written(self, harness, store):
        await recorded(store)
        claim = await claimed(store)
        held = await entry_of(store)

        await proceeded(store, claim, SENDING)

        entry = await entry_of(store)
        assert replace(entry, updated_at=held.updated_at) == held
        assert (await (await harness.store()).get("box", "x"))["colour"] == "sending"
        assert isinstance((await try_claim(store, "id-k"))[0], NotNow)
        assert await store.renew(THINGS, [Lease(claim.job_id, claim.fence)], HOUR) == []

    @pytest.mark.parametrize(("end", "status"), ENDINGS, ids=NAMES)
    async def test_the_lease_stays_good_for_another_transition(self, store, end, status):
        await recorded(store)
        claim = await claimed(store)
        await proceeded(store, claim, SENDING)

        answer = await settled(store, claim, replace(end, effects=[SENT]))

        assert (answer.status, (await entry_of(store)).status) == (status, status)
        assert (await store.get("box", "x"))["colour"] == "sent"
        (again,) = await store.settle([settlement(claim, Proceed([SENDING]))])
        assert again.stale
        assert (await store.get("box", "x"))["colour"] == "sent"

    async def test_a_proceed_that_is_sent_again_is_harmless(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=harness.moment)

        for _ in range(3):
            await proceeded(store, claim, SENDING)

        assert outcomes(await entry_of(store)) == [RUNNING]
        await harness.pass_time(harness.moment)
        assert isinstance((await try_claim(store, "id-k"))[0], Interrupted)

    async def test_a_job_whose_worker_vanished_after_it_proceeded_is_interrupted(self, harness, store):
        job = await recorded(store)
        await settled(store, await claimed(store), retried())
        claim = await claimed(store, lease=harness.moment)
        await proceeded(store, claim)
        await harness.pass_time(harness.moment)
        before = await store.now()

        (answer,) = await try_claim(await harness.store(), "id-k", lease=HOUR)

        entry = await entry_of(store)
        assert isinstance(answer, Interrupted)
        assert (answer.job_id, answer.key, answer.generation, answer.body) == (job.job_id, job.key, 1, job.body)
        assert (answer.attempt, answer.fence > claim.fence) == (2, True)
        assert (entry.status, entry.fence) == (Status.PROCESSING, answer.fence)
        assert outcomes(entry) == [FAILED, LOST]
        assert entry.attempts[-1].finished_at >= before
        assert entry.lease_until >= before + HOUR

    async def test_an_interrupted_job_can_be_dead_lettered(self, harness, store):
        await recorded(store)
        claim = await interrupted(harness, store)

        answer = await settled(store, claim, dead_lettered(reason_code="OUTCOME_UNKNOWN", effects=[SENT]))

        letter = await letter_of(store, dead_lettered().letter_id)
        assert (answer.status, letter.reason_code, outcomes(letter)) == (
            Status.DEAD_LETTERED,
            "OUTCOME_UNKNOWN",
            [LOST],
        )
        assert (await store.get("box", "x"))["colour"] == "sent"

    async def test_a_job_is_interrupted_again_when_its_next_worker_vanishes_too(self, harness, store):
        await recorded(store)
        fences = []
        claim = await claimed(store, lease=harness.moment)
        await proceeded(store, claim)
        for _ in range(3):
            await harness.pass_time(harness.moment)
            (answer,) = await try_claim(store, "id-k", lease=harness.moment)
            assert isinstance(answer, Interrupted)
            assert answer.attempt == 1
            fences.append(answer.fence)

        assert fences == sorted(set(fences))
        assert outcomes(await entry_of(store)) == [LOST]

    async def test_an_interrupted_job_is_held_like_any_other(self, harness, store):
        await recorded(store)
        claim = await interrupted(harness, store)

        assert isinstance((await try_claim(await harness.store(), "id-k"))[0], NotNow)
        assert await store.renew(THINGS, [Lease(claim.job_id, claim.fence)], HOUR) == []

    async def test_interrupted_comes_before_overdue_and_exhausted(self, harness, store):
        await store.record([a_job("late", ttl=harness.moment), a_job("spent")])
        late, spent = await try_claim(store, "id-late", "id-spent", lease=harness.moment, max_attempts=1)
        await proceeded(store, late)
        await proceeded(store, spent)
        await harness.pass_time(harness.moment)

        answers = await try_claim(store, "id-late", "id-spent", max_attempts=1)

        assert [type(answer) for answer in answers] == [Interrupted, Interrupted]

    async def test_a_job_that_may_be_repeated_leaves_no_mark(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=harness.moment)
        await proceeded(store, claim, SENDING, repeatable=True)
        await harness.pass_time(harness.moment)

        assert (await claimed(store)).attempt == 2
        assert (await store.get("box", "x"))["colour"] == "sending"

    @pytest.mark.parametrize("end", [retried(), Release()], ids=["retried", "released"])
    async def test_the_mark_is_gone_once_the_job_is_settled(self, harness, store, end):
        await recorded(store)
        claim = await claimed(store)
        await proceeded(store, claim)
        await settled(store, claim, end)
        await lapsed(harness, store)

        (answer,) = await try_claim(store, "id-k")

        assert isinstance(answer, Claimed)

    async def test_the_mark_is_gone_after_a_replay(self, harness, store):
        await recorded(store)
        await settled(store, await interrupted(harness, store), dead_lettered())
        letter = dead_lettered().letter_id
        await store.review([letter], actor="ana", reason="seen")
        await store.replay([(letter, None)], actor="ana", reason="it did not happen")

        assert (await lapsed(harness, store)).generation == 2
        assert (await claimed(store)).attempt == 2

    async def test_an_expired_job_does_not_proceed(self, harness, store):
        await recorded(store, ttl=harness.moment)
        claim = await claimed(store, lease=HOUR)
        await harness.pass_time(harness.moment)
        held = await entry_of(store)

        (answer,) = await store.settle([settlement(claim, Proceed([SENDING]))])

        assert answer == Settled("id-k", Status.PROCESSING, OVERDUE)
        assert not answer.stale
        assert await entry_of(store) == held
        assert await store.get("box", "x") is None
        await settled(store, claim, Expire(DAY))
        assert (await entry_of(store)).status is Status.EXPIRED

    async def test_an_expired_job_that_did_not_proceed_was_not_interrupted(self, harness, store):
        await recorded(store, ttl=harness.moment)
        claim = await claimed(store, lease=2 * harness.moment)
        await harness.pass_time(harness.moment)
        await store.settle([settlement(claim, Proceed())])
        await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k")

        assert not isinstance(answer, Interrupted)

    async def test_an_expired_job_holds_back_no_neighbour_that_proceeds(self, harness, store):
        await store.record([a_job("late", ttl=harness.moment), a_job("young", ttl=DAY), a_job("eternal")])
        late, young, eternal = await try_claim(store, "id-late", "id-young", "id-eternal")
        await harness.pass_time(harness.moment)

        answers = await store.settle(
            [settlement(each, Proceed([Upsert("box", each.key, {})])) for each in (late, young, eternal)],
        )

        assert [(answer.status, answer.note) for answer in answers] == [
            (Status.PROCESSING, OVERDUE),
            (Status.PROCESSING, None),
            (Status.PROCESSING, None),
        ]
        written = [await store.get("box", key) is not None for key in ("late", "young", "eternal")]
        assert written == [False, True, True]

    @pytest.mark.parametrize("other", ENDS, ids=lambda transition: type(transition).__name__)
    async def test_beside_another_transition_in_one_batch_the_first_counts(self, harness, store, other):
        await store.record([a_job("first"), a_job("k")])
        first, second = [await claimed(store, key, lease=harness.moment) for key in ("first", "k")]

        answers = await store.settle(
            [
                settlement(first, Proceed([Upsert("box", "a", {})])),
                settlement(second, other),
                settlement(first, completed(Upsert("box", "b", {}))),
                settlement(second, Proceed([Upsert("box", "c", {})])),
            ],
        )

        assert [answer.stale for answer in answers] == [False, False, True, True]
        assert (await entry_of(store, "first")).status is Status.PROCESSING
        assert [await store.get("box", key) is not None for key in "abc"] == [True, False, False]
        await harness.pass_time(harness.moment)
        assert isinstance((await try_claim(store, "id-first"))[0], Interrupted)

    async def test_proceeding_jobs_and_ending_jobs_share_a_batch_and_their_effects_are_folded_in_order(self, store):
        a, b, c = await recorded_and_claimed(store, "a", "b", "c")

        answers = await store.settle(
            [
                settlement(a, completed(Upsert("box", "x", {"who": "a", "a": 1}))),
                settlement(b, Proceed([Upsert("box", "x", {"who": "b", "b": 1})])),
                settlement(c, retried(effects=[Upsert("box", "x", {"c": 1})])),
            ],
        )

        record = await store.get("box", "x")
        assert [answer.status for answer in answers] == [Status.PROCESSED, Status.PROCESSING, Status.FAILED]
        assert [record.get(name) for name in ("who", "a", "b", "c")] == ["b", 1, 1, 1]

    async def test_a_job_with_an_impossible_effect_does_not_proceed(self, harness, store):
        good, bad = [await claimed(store, key, lease=harness.moment) for key in await two_recorded(store)]

        with pytest.raises(EffectRefused) as refused:
            await store.settle(
                [settlement(good, Proceed([SENDING])), settlement(bad, Proceed([Upsert("nowhere", "x", {})]))],
            )

        assert refused.value.job_id == bad.job_id
        assert await store.get("box", "x") is None
        await harness.pass_time(harness.moment)
        answers = await try_claim(store, good.job_id, bad.job_id)
        assert [type(answer) for answer in answers] == [Claimed, Claimed]

    async def test_a_stale_effect_does_not_keep_a_job_from_proceeding(self, store):
        await store.apply([Upsert("box", "x", {"at": "2026-01-02"})])
        await recorded(store)
        claim = await claimed(store)

        await proceeded(store, claim, Upsert("box", "x", {"at": "2026-01-01"}, only_if_newer="at"))

        assert (await store.get("box", "x"))["at"] == "2026-01-02"
        assert (await entry_of(store)).note is None

    async def test_a_worker_that_lost_its_job_does_not_proceed(self, harness, store):
        await recorded(store)
        stale = await lapsed(harness, store)
        await claimed(store, lease=harness.moment)

        (answer,) = await store.settle([settlement(stale, Proceed([SENDING]))])

        assert answer.stale
        assert await store.get("box", "x") is None
        await harness.pass_time(harness.moment)
        assert isinstance((await try_claim(store, "id-k"))[0], Claimed)

    async def test_a_worker_never_proceeds_with_a_job_that_another_runs(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(40)])
        claims = await try_claim(store, *(f"id-k{n}" for n in range(40)), lease=harness.moment)
        await harness.pass_time(harness.moment)
        for claim in claims:
            (mine,), (theirs,) = await asyncio.gather(
                store.settle([settlement(claim, Proceed())]),
                try_claim(elsewhere, claim.job_id),
            )

            assert isinstance(theirs, Claimed if mine.stale else Interrupted)


class TransitionsWithEffects:
    @pytest.mark.parametrize(("end", "status"), ENDINGS, ids=NAMES)
    async def test_every_transition_commits_its_effects(self, harness, store, end, status):
        await recorded(store)

        answer = await settled(store, await claimed(store), replace(end, effects=[SENT]))

        assert (answer.status, answer.note) == (status, None)
        assert (await (await harness.store()).get("box", "x"))["colour"] == "sent"

    @pytest.mark.parametrize(("end", "status"), ENDINGS, ids=NAMES)
    async def test_every_transition_notes_a_stale_effect(self, store, end, status):
        await store.apply([Upsert("box", "x", {"at": "2026-01-02"})])
        await recorded(store)
        late = Upsert("box", "x", {"at": "2026-01-01"}, only_if_newer="at")

        answer = await settled(store, await claimed(store), replace(end, effects=[late]))

        assert (answer.status, answer.note) == (status, IGNORED_STALE)
        assert (await entry_of(store)).note == IGNORED_STALE
        assert (await store.get("box", "x"))["at"] == "2026-01-02"

    @pytest.mark.parametrize("end", ENDS, ids=NAMES)
    async def test_an_impossible_effect_of_any_transition_is_refused(self, store, end):
        await recorded(store)
        claim = await claimed(store)
        held = await entry_of(store)

        with pytest.raises(EffectRefused):
            await store.settle([settlement(claim, replace(end, effects=[Upsert("nowhere", "x", {})]))])

        assert await entry_of(store) == held
        assert await store.letter(dead_lettered().letter_id) is None

    async def test_a_letter_can_hold_another_body_than_its_job(self, store):
        job = await recorded(store)

        await settled(store, await claimed(store), dead_lettered(body='{"of": "***"}'))

        assert (await letter_of(store, dead_lettered().letter_id)).body == '{"of": "***"}'
        assert (await entry_of(store)).body == job.body

    async def test_an_expired_entry_has_the_note_of_its_transition(self, store):
        await store.apply([Upsert("box", "x", {"at": "2026-01-02"})])
        late = Upsert("box", "x", {"at": "2026-01-01"}, only_if_newer="at")
        plain, stale = await recorded_and_claimed(store, "plain", "stale")

        answers = await store.settle(
            [
                settlement(plain, Expire(DAY, note="withdrawn")),
                settlement(stale, Expire(DAY, [late], note="withdrawn")),
            ],
        )

        assert [answer.note for answer in answers] == ["withdrawn", "withdrawn"]
        assert [(await entry_of(store, key)).note for key in ("plain", "stale")] == ["withdrawn", "withdrawn"]


async def two_recorded(store):
    await store.record([a_job("good"), a_job("bad")])
    return ("good", "bad")
