"""Sweeping: the jobs that maintenance finds again, and what it prunes (I1, I8, I10, I12)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.contracts.effects import Upsert
from holdfast.contracts.ledger import Lease, RecordedAs, Status
from holdfast.contracts.transitions import Expire, Release
from tests.conformance.vocabulary import (
    DAY,
    HOUR,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead,
    dead_and_reviewed,
    dead_lettered,
    entry_of,
    recorded,
    retried,
    settled,
    try_claim,
)


async def due(store, limit=100, again_after=HOUR):
    return [entry.job_id for entry in await store.due(THINGS, limit, again_after=again_after)]


class Sweeping:
    async def test_an_untouched_job_is_due_after_the_grace(self, harness, store):
        job = await recorded(store, priority=4)
        assert await due(store) == []

        await harness.pass_time(harness.grace + harness.moment)

        (found,) = await store.due(THINGS, 100, again_after=HOUR)
        assert (found.job_id, found.body, found.priority) == (job.job_id, job.body, 4)
        assert (found.attempt_count, found.after, found.generation) == (0, timedelta(0), 1)

    async def test_the_unsettled_of_some_jobs_are_found_by_their_ids(self, store):
        await recorded(store, "waits", priority=4)
        await recorded(store, "elsewhere", workload=OTHERS)
        await recorded(store, "not asked for")
        for name in ("done", "tried", "running"):
            await recorded(store, name)
        await settled(store, await claimed(store, "done"), completed())
        await settled(store, await claimed(store, "tried"), retried(HOUR))
        await claimed(store, "running")

        found = await store.unsettled(
            THINGS, [f"id-{name}" for name in ("waits", "elsewhere", "done", "tried", "running")]
        )

        by_id = {each.job_id: each for each in found}
        assert set(by_id) == {"id-waits", "id-tried", "id-running"}
        waits, tried = by_id["id-waits"], by_id["id-tried"]
        assert (waits.priority, waits.attempt_count, waits.generation, waits.foreign) == (4, 0, 1, False)
        assert waits.changed_at == (await entry_of(store, "waits")).first_seen_at
        assert (tried.attempt_count, tried.changed_at) == (1, (await entry_of(store, "tried")).updated_at)
        assert HOUR - timedelta(minutes=1) < tried.after <= HOUR
        assert await store.unsettled(THINGS, []) == []

    async def test_a_job_is_due_in_its_own_workload(self, harness, store):
        await recorded(store, workload=OTHERS)
        await harness.pass_time(harness.grace + harness.moment)

        assert await due(store) == []

    async def test_a_delay_postpones_the_due_time(self, harness, store):
        await recorded(store, "later", delay=HOUR)
        await recorded(store, "now")

        await harness.pass_time(harness.grace + harness.moment)

        assert await due(store) == ["id-now"]

    async def test_a_job_that_was_reported_is_not_reported_again_for_a_while(self, harness, store):
        await recorded(store)
        await harness.pass_time(harness.grace + harness.moment)

        assert await due(store, again_after=harness.moment) == ["id-k"]
        assert await due(store, again_after=harness.moment) == []
        await harness.pass_time(harness.moment)
        assert await due(store) == ["id-k"]

    async def test_two_sweepers_share_the_work(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(60)])
        await harness.pass_time(harness.grace + harness.moment)

        shares = await asyncio.gather(*(due(sweeper, 10) for sweeper in [store, elsewhere] * 3))

        found = [job_id for share in shares for job_id in share]
        assert sorted(found) == sorted(f"id-k{n}" for n in range(60))

    async def test_the_oldest_are_reported_first(self, harness, store):
        for key in ("c", "a", "b"):
            await recorded(store, key)
            await harness.pass_time(harness.moment)
        await harness.pass_time(harness.grace)

        assert await due(store, 2) == ["id-c", "id-a"]
        assert await due(store, 2) == ["id-b"]

    async def test_a_job_in_work_is_due_when_its_lease_has_run_out(self, harness, store):
        await store.record([a_job("held"), a_job("lost"), a_job("renewed")])
        await claimed(store, "held", lease=DAY)
        await claimed(store, "lost", lease=harness.moment)
        renewed = await claimed(store, "renewed", lease=harness.moment)
        await store.renew(THINGS, [Lease(renewed.job_id, renewed.fence)], DAY)

        await harness.pass_time(harness.grace + harness.moment)

        (found,) = await store.due(THINGS, 100, again_after=HOUR)
        assert (found.job_id, found.attempt_count) == ("id-lost", 1)

    async def test_a_failed_job_is_due_after_its_wait_and_the_grace(self, harness, store):
        await store.record([a_job("soon"), a_job("later"), a_job("back")])
        await settled(store, await claimed(store, "soon"), retried())
        await settled(store, await claimed(store, "later"), retried(HOUR))
        await settled(store, await claimed(store, "back"), Release())
        assert await due(store) == []

        await harness.pass_time(harness.grace + harness.moment)

        found = {entry.job_id: entry.attempt_count for entry in await store.due(THINGS, 100, again_after=HOUR)}
        assert found == {"id-soon": 1, "id-back": 0}

    async def test_a_settled_job_is_never_due(self, harness, store):
        await store.record([a_job("done"), a_job("dead"), a_job("late")])
        await settled(store, await claimed(store, "done"), completed())
        await settled(store, await claimed(store, "dead"), dead_lettered("dead"))
        await settled(store, await claimed(store, "late"), Expire(DAY))

        await harness.pass_time(harness.grace + harness.moment)

        assert await due(store) == []

    async def test_jobs_that_wait_past_their_deadline_are_overdue(self, harness, store):
        await store.record([a_job(key, ttl=harness.moment) for key in ("new", "tried", "running", "done")])
        await store.record([a_job("young", ttl=DAY), a_job("eternal"), a_job("k", workload=OTHERS, ttl=HOUR)])
        await settled(store, await claimed(store, "tried"), retried(HOUR))
        await claimed(store, "running")
        await settled(store, await claimed(store, "done"), completed())
        assert await store.overdue(THINGS, 100) == []

        await harness.pass_time(harness.moment)

        assert sorted(await store.overdue(THINGS, 100)) == ["id-new", "id-tried"]
        assert len(await store.overdue(THINGS, 1)) == 1
        assert await store.overdue(OTHERS, 100) == []


class DetectingQueueResets:
    async def test_the_first_queue_is_remembered(self, harness, store):
        assert await store.detect_queue_reset("one") is False
        assert await store.detect_queue_reset("one") is False
        assert await (await harness.store()).detect_queue_reset("one") is False

    async def test_another_queue_makes_everything_that_waits_due(self, store):
        await store.detect_queue_reset("one")
        await store.record([a_job(key) for key in ("new", "failed", "running", "done")])
        await store.record([a_job("delayed", delay=HOUR), a_job("k", workload=OTHERS)])
        await settled(store, await claimed(store, "failed"), retried(HOUR))
        await claimed(store, "running")
        await settled(store, await claimed(store, "done"), completed())

        assert await store.detect_queue_reset("two") is True

        found = {entry.job_id: entry.after for entry in await store.due(THINGS, 100, again_after=HOUR)}
        assert found.keys() == {"id-new", "id-failed", "id-delayed"}
        assert found["id-new"] == timedelta(0)
        assert timedelta(0) < found["id-failed"] <= HOUR
        assert timedelta(0) < found["id-delayed"] <= HOUR
        assert len(await store.due(OTHERS, 100, again_after=HOUR)) == 1
        assert await store.detect_queue_reset("two") is False

    async def test_another_queue_makes_pending_letters_unpublished(self, store):
        await store.detect_queue_reset("one")
        pending, reviewed = await dead(store, "a"), await dead_and_reviewed(store, "b")
        assert await store.mark_published([pending, reviewed], "one")
        assert await store.letters_to_publish(THINGS, 100) == []

        await store.detect_queue_reset("two")

        assert [letter.id for letter in await store.letters_to_publish(THINGS, 100)] == [pending]

    async def test_what_was_given_to_a_lost_queue_is_not_published(self, store):
        await store.detect_queue_reset("one")
        letter = await dead(store, "a")
        await store.detect_queue_reset(
            "two"
        )  # another process noticed the reset while we were publishing to the old queue

        assert await store.mark_published([letter], "one") is False

        assert [each.id for each in await store.letters_to_publish(THINGS, 100)] == [letter]

    async def test_of_many_processes_one_does_the_work(self, harness, store):
        elsewhere = await harness.store()
        await store.detect_queue_reset("one")

        answers = await asyncio.gather(*(each.detect_queue_reset("two") for each in [store, elsewhere] * 4))

        assert sorted(answers) == [False] * 7 + [True]


class Pruning:
    async def test_a_settled_entry_is_kept_for_its_retention(self, harness, store):
        await store.record([a_job("done"), a_job("late"), a_job("kept")])
        effects = [Upsert("box", "x", {"colour": "red"})]
        await settled(store, await claimed(store, "done"), completed(*effects, retention=harness.moment))
        await settled(store, await claimed(store, "late"), Expire(harness.moment))
        await settled(store, await claimed(store, "kept"), completed(retention=DAY))
        assert (await store.prune(100)).entries == 0

        await harness.pass_time(harness.moment)
        pruned = await store.prune(100)

        assert (pruned.entries, dict(pruned.letters)) == (2, {})
        assert await store.counts(THINGS) == {"processed": 1}
        assert await store.get("box", "x") is not None

    async def test_a_letter_is_kept_for_its_retention_and_its_entry_with_it(self, harness, store):
        short, long = {"letter_retention": harness.moment, "retention": timedelta(0)}, {"letter_retention": DAY}
        first = await dead(store, "a", dead_letter=short)
        other = await dead(store, "a", workload=OTHERS, dead_letter=short)
        kept = await dead(store, "b", dead_letter=long)
        assert (await store.prune(100)).entries == 0

        await harness.pass_time(harness.moment)
        pruned = await store.prune(100)

        assert pruned.letters == {THINGS: [first], OTHERS: [other]}
        assert pruned.entries == 2
        assert await store.letter(first) is None
        assert await store.letter(kept) is not None
        assert (await entry_of(store, "b")).status is Status.DEAD_LETTERED

    async def test_a_job_that_waits_is_never_forgotten(self, harness, store):
        await store.record([a_job(key) for key in ("new", "running", "failed", "back", "replayed")])
        await store.record([a_job("delayed", delay=HOUR), a_job("overdue", ttl=timedelta(milliseconds=1))])
        await claimed(store, "running", lease=timedelta(milliseconds=1))
        await settled(store, await claimed(store, "failed"), retried())
        await settled(store, await claimed(store, "back"), Release())
        brief = {"retention": harness.moment, "letter_retention": harness.moment}
        await settled(store, await claimed(store, "replayed"), dead_lettered("replayed", **brief))
        letter = dead_lettered("replayed").letter_id
        await store.review([letter], actor="ana", reason="seen")
        assert await store.replay([(letter, None)], actor="ana", reason="mended") == [letter]

        await harness.pass_time(2 * harness.moment)
        pruned = await store.prune(100)

        assert (pruned.entries, pruned.letters) == (0, {THINGS: [letter]})
        assert sum((await store.counts(THINGS)).values()) == 7

    async def test_an_entry_is_not_forgotten_while_a_letter_of_its_key_stands(self, harness, store):
        letter = await dead(store, dead_letter={"letter_retention": DAY})
        await store.review([letter], actor="ana", reason="seen")
        await store.replay([(letter, None)], actor="ana", reason="mended")
        await settled(store, await claimed(store), completed(retention=timedelta(0)))
        await harness.pass_time(harness.moment)

        assert (await store.prune(100)).entries == 0

        # Otherwise the key could be recorded as new, and its next letter would have the id of the old letter.
        (answer,) = await store.record([a_job()])
        assert answer.recorded_as is RecordedAs.DUPLICATE

    async def test_no_letter_outlives_its_entry_however_little_is_pruned_at_a_time(self, harness, store):
        brief = {"retention": timedelta(0), "letter_retention": timedelta(0)}
        letters = {f"k{n}": await dead(store, f"k{n}", dead_letter=brief) for n in range(6)}
        await recorded(store, "x")
        await settled(store, await claimed(store, "x"), completed(retention=timedelta(0)))
        await harness.pass_time(harness.moment)
        while (pruned := await store.prune(2)).entries or pruned.letters:
            for key, letter in letters.items():
                if await store.letter(letter) is not None:
                    assert await store.entry(THINGS, key) is not None

        assert await store.counts(THINGS) == {}

    async def test_pruning_takes_no_more_than_asked(self, harness, store):
        await store.record([a_job(f"k{n}") for n in range(5)])
        for claim in await try_claim(store, *(f"id-k{n}" for n in range(5))):
            await settled(store, claim, completed(retention=timedelta(0)))
        await harness.pass_time(harness.moment)

        assert [(await store.prune(2)).entries for _ in range(4)] == [2, 2, 1, 0]

    async def test_a_forgotten_key_is_new_again(self, harness, store):
        await recorded(store)
        await settled(store, await claimed(store), completed(retention=timedelta(0)))
        await harness.pass_time(harness.moment)
        await store.prune(100)

        (answer,) = await store.record([a_job(fingerprint="other")])

        assert answer.recorded_as is RecordedAs.NEW
        assert (await claimed(store)).attempt == 1
