"""Reviewing: people decide about dead letters, each step once (I9)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contracts.dead_letters import ReviewStatus, letter_id
from holdfast.contracts.ledger import RecordedAs, Status
from tests.conformance.vocabulary import (
    AWKWARD,
    DAY,
    HOUR,
    MEGABYTE,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead,
    dead_and_reviewed,
    dead_lettered,
    entry_of,
    keys_of_letters,
    letter_of,
    recorded,
    retried,
    settled,
    settlement,
)

PENDING, REVIEWED, REPLAYED, CLOSED = ReviewStatus


async def bring_to(store, status, key="k"):
    """A dead letter in this state."""
    letter = await dead(store, key)
    if status is not PENDING:
        await store.review([letter], actor="ana", reason="seen")
    if status is REPLAYED:
        await store.replay([(letter, None)], actor="ana", reason="mended")
    if status is CLOSED:
        await store.close([letter], actor="ana", reason="done")
    return letter


STEPS = {
    REVIEWED: lambda store, letter: store.review([letter], actor="bo", reason="why"),
    REPLAYED: lambda store, letter: store.replay([(letter, None)], actor="bo", reason="why"),
    CLOSED: lambda store, letter: store.close([letter], actor="bo", reason="why"),
}
LEGAL = {(PENDING, REVIEWED), (REVIEWED, REPLAYED), (REVIEWED, CLOSED), (REPLAYED, CLOSED)}


class Reviewing:
    @pytest.mark.parametrize("end", STEPS)
    @pytest.mark.parametrize("start", ReviewStatus)
    async def test_only_the_legal_steps_are_taken(self, store, start, end):
        letter = await bring_to(store, start)
        stood = await letter_of(store, letter)

        moved = await STEPS[end](store, letter)

        stands = await letter_of(store, letter)
        if (start, end) in LEGAL:
            assert moved == [letter]
            assert stands.review_status is end
            assert stands.decisions[:-1] == stood.decisions
        else:
            assert moved == []
            assert stands == stood

    async def test_each_step_records_who_and_why_and_when(self, harness, store):
        letter = await dead(store)
        times = []
        for step in STEPS.values():
            await harness.pass_time(harness.moment)
            times.append(await store.now())
            await step(store, letter)
        after = await store.now()

        decisions = (await letter_of(store, letter)).decisions
        assert [(each.step, each.actor, each.reason) for each in decisions] == [
            (REVIEWED, "bo", "why"),
            (REPLAYED, "bo", "why"),
            (CLOSED, "bo", "why"),
        ]
        for decision, earliest, latest in zip(decisions, times, [*times[1:], after], strict=True):
            assert earliest <= decision.at <= latest

    async def test_what_people_write_comes_back(self, store):
        letter = await dead(store)

        await store.review([letter], actor=AWKWARD, reason=AWKWARD * 50)

        (decision,) = (await letter_of(store, letter)).decisions
        assert (decision.actor, decision.reason) == (AWKWARD, AWKWARD * 50)

    async def test_of_many_letters_those_that_moved_are_returned(self, store):
        first, second = await dead(store, "a"), await dead(store, "b")
        closed = await bring_to(store, CLOSED, "c")

        assert await store.review([second, closed, "dl_never", first], actor="ana", reason="seen") == [second, first]
        assert await store.close([first, "dl_never"], actor="ana", reason="done") == [first]
        assert await store.review([], actor="ana", reason="none") == []

    async def test_of_two_people_one_takes_the_step(self, harness, store):
        elsewhere = await harness.store()
        for number in range(15):
            letter = await dead(store, f"k{number}")

            moved = await asyncio.gather(
                *(each.review([letter], actor="ana", reason="seen") for each in [store, elsewhere] * 2),
            )

            assert sorted(moved) == [[], [], [], [letter]]
            assert len((await letter_of(store, letter)).decisions) == 1


class Replaying:
    async def test_a_replay_is_a_new_generation_of_the_same_job(self, store):
        letter = await dead_and_reviewed(store)
        old = await entry_of(store)
        before = await store.now()

        assert await store.replay([(letter, None)], actor="ana", reason="mended") == [letter]

        entry = await entry_of(store)
        assert (entry.status, entry.generation, entry.attempts) == (Status.RECEIVED, 2, ())
        assert (entry.key, entry.job_id, entry.body, entry.labels) == (old.key, old.job_id, old.body, old.labels)
        assert (entry.expires_at, entry.lease_until, entry.first_seen_at) == (None, None, old.first_seen_at)
        assert (entry.last_error_code, entry.last_error_message) == (None, None)
        claim = await claimed(store)
        assert (claim.generation, claim.attempt, claim.fence > old.fence) == (2, 1, True)
        assert (await entry_of(store)).updated_at >= before

    async def test_a_replayed_job_can_be_processed(self, store):
        letter = await dead_and_reviewed(store)
        await store.replay([(letter, None)], actor="ana", reason="mended")

        await settled(store, await claimed(store), completed())

        assert (await entry_of(store)).status is Status.PROCESSED
        assert (await letter_of(store, letter)).review_status is REPLAYED

    async def test_a_replayed_job_that_fails_for_good_again_gets_a_letter_of_its_own(self, store):
        first = await dead_and_reviewed(store)
        await store.replay([(first, None)], actor="ana", reason="mended")
        await settled(store, await claimed(store), retried())
        claim = await claimed(store)
        assert (claim.generation, claim.attempt) == (2, 2)

        await settled(store, claim, dead_lettered(generation=2))

        second = letter_id(THINGS, "k", 2)
        assert second != first
        letter = await letter_of(store, second)
        assert (letter.generation, letter.attempt_count, letter.review_status) == (2, 2, PENDING)
        assert (await letter_of(store, first)).attempt_count == 1
        assert (await entry_of(store)).attempt_count == 2
        assert await keys_of_letters(store, key="k") == ["k", "k"]

    async def test_an_old_letter_does_not_replay_a_newer_generation(self, store):
        first = await dead_and_reviewed(store)
        await store.replay([(first, None)], actor="ana", reason="mended")
        await settled(store, await claimed(store), dead_lettered(generation=2))
        stands = await entry_of(store)

        assert await store.replay([(first, None)], actor="ana", reason="again") == []
        assert await entry_of(store) == stands

    async def test_a_worker_from_before_the_replay_settles_nothing(self, store):
        await recorded(store)
        stale = await claimed(store)
        await settled(store, stale, dead_lettered())
        await store.review([dead_lettered().letter_id], actor="ana", reason="seen")
        await store.replay([(dead_lettered().letter_id, None)], actor="ana", reason="mended")
        await claimed(store)

        (answer,) = await store.settle([settlement(stale, completed())])

        assert answer.stale

    async def test_a_letter_is_replayed_once_however_many_ask(self, harness, store):
        elsewhere = await harness.store()
        for number in range(15):
            letter = await dead_and_reviewed(store, f"k{number}")

            moved = await asyncio.gather(
                *(each.replay([(letter, None)], actor="ana", reason="mended") for each in [store, elsewhere] * 2),
            )

            assert sorted(moved) == [[], [], [], [letter]]
            assert (await entry_of(store, f"k{number}")).generation == 2
            assert len((await letter_of(store, letter)).decisions) == 2

    async def test_a_letter_that_is_named_twice_is_replayed_once(self, store):
        letter = await dead_and_reviewed(store)

        assert await store.replay([(letter, None)] * 2, actor="ana", reason="mended") == [letter]
        assert (await entry_of(store)).generation == 2

    async def test_letters_that_cannot_be_replayed_hold_back_no_other(self, store):
        pending, reviewed = await dead(store, "a"), await dead_and_reviewed(store, "b")
        replays = [("dl_never", None), (pending, None), (reviewed, None)]

        assert await store.replay(replays, actor="ana", reason="mended") == [reviewed]
        assert (await entry_of(store, "a")).status is Status.DEAD_LETTERED

    async def test_a_replay_can_record_a_new_job_instead(self, store):
        letter = await dead_and_reviewed(store)
        stood = await entry_of(store)
        new = a_job("k-again", replay_of="k")

        assert await store.replay([(letter, new)], actor="ana", reason="mended") == [letter]

        entry = await entry_of(store, "k-again")
        assert (entry.status, entry.generation, entry.replay_of) == (Status.RECEIVED, 1, "k")
        assert await entry_of(store) == stood
        assert (await letter_of(store, letter)).replayed_as == "k-again"
        assert (await claimed(store, "k-again")).attempt == 1

    async def test_a_new_job_whose_key_is_taken_is_no_replay(self, store):
        letter = await dead_and_reviewed(store)
        await recorded(store, "taken")
        stood = await letter_of(store, letter)

        assert await store.replay([(letter, a_job("taken", replay_of="k"))], actor="ana", reason="mended") == []
        assert await letter_of(store, letter) == stood

    async def test_a_new_job_is_recorded_once_however_many_ask(self, harness, store):
        elsewhere = await harness.store()
        letter = await dead_and_reviewed(store)

        moved = await asyncio.gather(
            *(
                each.replay([(letter, a_job(f"new-{n}"))], actor="ana", reason="mended")
                for n, each in enumerate([store, elsewhere] * 2)
            ),
        )

        assert sorted(moved) == [[], [], [], [letter]]
        assert await store.counts(THINGS) == {"dead_lettered": 1, "received": 1}

    async def test_a_replayed_job_gets_its_whole_ttl_again(self, harness, store):
        letter = await dead_and_reviewed(store, ttl=HOUR)
        await harness.pass_time(harness.moment)
        before = await store.now()

        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert (await entry_of(store)).deadline >= before + HOUR

    async def test_a_replayed_job_is_due_when_the_queue_does_not_get_it(self, harness, store):
        letter = await dead_and_reviewed(store)
        await store.replay([(letter, None)], actor="ana", reason="mended")
        await harness.pass_time(harness.grace + harness.moment)

        (found,) = await store.due(THINGS, 10, again_after=HOUR)
        assert (found.job_id, found.generation) == ("id-k", 2)

    async def test_the_key_of_a_dead_lettered_job_is_still_known(self, store):
        await dead(store)

        (answer,) = await store.record([a_job()])

        assert (answer.recorded_as, answer.status) == (RecordedAs.DUPLICATE, Status.DEAD_LETTERED)


class Publishing:
    async def test_pending_letters_wait_to_be_published_oldest_first(self, store):
        letters = [await dead(store, key) for key in ("b", "a", "c")]
        await dead(store, "d", workload=OTHERS)

        assert [each.id for each in await store.letters_to_publish(THINGS, 100)] == letters
        assert [each.id for each in await store.letters_to_publish(THINGS, 2)] == letters[:2]

    async def test_large_letters_are_published_a_few_at_a_time(self, store):
        letters = [await dead(store, f"k{number}", body=MEGABYTE) for number in range(12)]

        first = [each.id for each in await store.letters_to_publish(THINGS, 100)]
        await store.mark_published(first, "queue")
        second = [each.id for each in await store.letters_to_publish(THINGS, 100)]

        assert first + second == letters
        assert len(first) == 8

    async def test_a_published_letter_is_published(self, harness, store):
        letters = [await dead(store, key) for key in ("a", "b", "c")]

        await store.mark_published([letters[0], letters[2], "dl_never"], "queue")

        assert [each.id for each in await (await harness.store()).letters_to_publish(THINGS, 100)] == [letters[1]]

    async def test_a_letter_that_people_have_seen_need_not_be_published(self, store):
        await dead_and_reviewed(store)

        assert await store.letters_to_publish(THINGS, 100) == []

    async def test_an_unpublished_letter_is_whole(self, store):
        letter = await dead(store, dead_letter={"letter_retention": DAY})

        assert await store.letters_to_publish(THINGS, 1) == [await letter_of(store, letter)]

    async def test_replayed_and_closed_letters_are_unpublished_once(self, harness, store):
        replayed, closed, reviewed = [await dead_and_reviewed(store, key) for key in ("b", "a", "c")]
        pending = await dead(store, "d")
        await dead_and_reviewed(store, "e", workload=OTHERS)
        await store.mark_published([closed, pending, reviewed], "queue")
        assert await store.letters_to_unpublish(THINGS, 100) == []

        await store.replay([(replayed, None)], actor="ana", reason="mended")
        await store.close([closed], actor="ana", reason="done")

        # The replayed letter was never marked as published: another process may be publishing it right now.
        assert await store.letters_to_unpublish(THINGS, 100) == [replayed, closed]
        assert await store.letters_to_unpublish(THINGS, 1) == [replayed]
        await (await harness.store()).mark_unpublished([replayed, "dl_never"])
        assert await store.letters_to_unpublish(THINGS, 100) == [closed]
        assert [each.id for each in await store.letters_to_publish(THINGS, 100)] == []

    async def test_a_restored_queue_may_hold_letters_that_were_unpublished_before(self, store):
        await store.detect_queue_reset("one")
        letter, pending = await dead_and_reviewed(store, "a"), await dead(store, "b")
        await store.mark_published([letter, pending], "one")
        await store.close([letter], actor="ana", reason="done")
        await store.mark_unpublished([letter])
        assert await store.letters_to_unpublish(THINGS, 100) == []

        await store.detect_queue_reset("an older copy of one")

        assert await store.letters_to_unpublish(THINGS, 100) == [letter]
        assert [each.id for each in await store.letters_to_publish(THINGS, 100)] == [pending]
        await store.mark_unpublished([letter])
        assert await store.letters_to_unpublish(THINGS, 100) == []

    async def test_a_letter_that_is_marked_late_is_not_published_again(self, store):
        letter = await dead_and_reviewed(store)
        await store.close([letter], actor="ana", reason="done")
        await store.mark_unpublished([letter])

        await store.mark_published([letter], "queue")

        assert await store.letters_to_unpublish(THINGS, 100) == [letter]
        assert await store.letters_to_publish(THINGS, 100) == []
