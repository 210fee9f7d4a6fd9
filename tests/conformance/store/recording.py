"""Recording: one entry for each key, whichever process records it and however often (I2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.contracts.ledger import RecordedAs, Status, Unrecorded
from tests.conformance.vocabulary import (
    AWKWARD,
    HOUR,
    OTHERS,
    a_job,
    claimed,
    completed,
    entry_of,
    recorded,
    settled,
    try_claim,
)

NEW, DUPLICATE, CONFLICT = RecordedAs.NEW, RecordedAs.DUPLICATE, RecordedAs.CONFLICT


async def transitions(store, *entries):
    return [answer.recorded_as for answer in await store.record(entries)]


class Recording:
    async def test_a_new_job_is_received(self, store):
        before = await store.now()
        job = a_job(priority=7, delay=HOUR, ttl=2 * HOUR, replay_of="an older one")
        (answer,) = await store.record([job])
        after = await store.now()

        entry = await entry_of(store)
        assert (answer.recorded_as, answer.job_id, answer.labels, answer.status) == (
            NEW,
            job.job_id,
            job.labels,
            Status.RECEIVED,
        )
        assert answer.first_seen_at == entry.first_seen_at
        assert before <= entry.first_seen_at <= after
        assert (entry.workload, entry.key, entry.job_id, entry.body) == (job.workload, job.key, job.job_id, job.body)
        assert (entry.status, entry.generation, entry.attempts) == (Status.RECEIVED, 1, ())
        assert (entry.labels, entry.priority, entry.replay_of) == (job.labels, 7, "an older one")
        assert entry.not_before - entry.first_seen_at == HOUR
        assert entry.deadline - entry.first_seen_at == 2 * HOUR
        assert (entry.lease_until, entry.expires_at, entry.note, entry.result) == (None, None, None, None)
        assert (entry.last_error_code, entry.last_error_message) == (None, None)

    async def test_a_job_without_a_ttl_has_no_deadline(self, store):
        await recorded(store)

        assert (await entry_of(store)).deadline is None

    async def test_an_empty_batch_records_nothing(self, store):
        assert await store.record([]) == []

    async def test_the_same_content_again_is_a_duplicate_and_gets_the_first_receipt(self, harness, store):
        (first,) = await store.record([a_job()])
        stands = await entry_of(store)
        await harness.pass_time(harness.moment)

        (second,) = await store.record([a_job(job_id="another", labels={"colour": "blue"}, body="{}", priority=3)])

        assert (second.recorded_as, second.job_id, second.labels) == (DUPLICATE, first.job_id, first.labels)
        assert second.first_seen_at == first.first_seen_at
        assert await entry_of(store) == stands

    async def test_other_content_under_a_known_key_is_a_conflict(self, store):
        await recorded(store)
        stands = await entry_of(store)

        (answer,) = await store.record([a_job(fingerprint="other", body="{}")])

        assert (answer.recorded_as, answer.job_id) == (CONFLICT, stands.job_id)
        assert await entry_of(store) == stands

    async def test_a_duplicate_gets_the_present_status_of_the_job(self, store):
        await recorded(store)
        await settled(store, await claimed(store), completed())

        (answer,) = await store.record([a_job()])

        assert (answer.recorded_as, answer.status) == (DUPLICATE, Status.PROCESSED)

    async def test_equal_keys_in_one_batch_count_in_their_order(self, store):
        batch = [a_job("a"), a_job("b"), a_job("a"), a_job("a", fingerprint="other"), a_job("b")]

        assert await transitions(store, *batch) == [NEW, NEW, DUPLICATE, CONFLICT, DUPLICATE]
        assert (await entry_of(store, "a")).body == batch[0].body

    async def test_a_key_belongs_to_its_workload(self, store):
        assert await transitions(store, a_job(), a_job(workload=OTHERS)) == [NEW, NEW]
        assert (await entry_of(store, workload=OTHERS)).workload == OTHERS

    async def test_a_job_id_that_another_key_holds_is_a_conflict(self, store):
        await recorded(store, "a", job_id="taken")

        assert await transitions(store, a_job("b"), a_job("c", job_id="taken"), a_job("d")) == [NEW, CONFLICT, NEW]
        assert await store.entry("things", "c") is None

    async def test_a_job_id_can_be_taken_within_the_batch(self, store):
        assert await transitions(store, a_job("a", job_id="one"), a_job("b", job_id="one")) == [NEW, CONFLICT]
        assert await store.entry("things", "b") is None
        assert (await entry_of(store, "a")).job_id == "one"

    async def test_keys_that_look_alike_are_different(self, store):
        alike = ["key", "Key", "key ", " key", "kéy", "ke\u0301y", "key\u200b", "k%y", "k_y"]

        answers = await transitions(store, *(a_job(key, job_id=f"id{n}") for n, key in enumerate(alike)))

        assert answers == [NEW] * len(alike)

    async def test_text_comes_back_as_it_went_in(self, store):
        await recorded(
            store,
            AWKWARD,
            job_id="awkward",
            body=AWKWARD * 1000,
            fingerprint=AWKWARD,
            labels={"colour": AWKWARD, "a.b $c'\"": "x"},
        )

        entry = await entry_of(store, AWKWARD)

        assert (entry.key, entry.body) == (AWKWARD, AWKWARD * 1000)
        assert entry.labels == {"colour": AWKWARD, "a.b $c'\"": "x"}
        assert await transitions(store, a_job(AWKWARD, fingerprint=AWKWARD, job_id="again")) == [DUPLICATE]
        (claim,) = await try_claim(store, "awkward")
        assert (claim.key, claim.body, claim.labels) == (entry.key, entry.body, entry.labels)

    async def test_a_thousand_jobs_are_recorded_in_one_batch(self, store):
        jobs = [a_job(f"k{n}", job_id=f"j{n}") for n in range(1000)]
        again = [jobs[0], jobs[500], jobs[999]]

        answers = await store.record([*jobs, *again])

        assert [answer.job_id for answer in answers] == [job.job_id for job in [*jobs, *again]]
        assert [answer.recorded_as for answer in answers] == [NEW] * 1000 + [DUPLICATE] * 3
        assert await store.counts("things") == {"received": 1000}

    async def test_another_process_sees_what_was_recorded(self, harness, store):
        await recorded(store)
        elsewhere = await harness.store()

        assert await transitions(elsewhere, a_job(), a_job(fingerprint="other")) == [DUPLICATE, CONFLICT]
        assert await entry_of(elsewhere) == await entry_of(store)

    async def test_of_two_processes_that_race_for_a_key_one_wins(self, harness, store):
        elsewhere = await harness.store()
        for number in range(40):
            jobs = [a_job(f"k{number}", body=f'"{who}"', job_id=f"j{number}") for who in range(6)]
            racers = [store, elsewhere] * 3

            answers = await asyncio.gather(
                *(racer.record([job]) for racer, job in zip(racers, jobs, strict=True)),
            )

            outcome = [answer.recorded_as for (answer,) in answers]
            assert sorted(outcome) == [DUPLICATE] * 5 + [NEW]
            assert (await entry_of(store, f"k{number}")).body == jobs[outcome.index(NEW)].body
        assert await store.counts("things") == {"received": 40}

    async def test_of_two_contents_that_race_for_a_key_one_is_new_and_one_a_conflict(self, harness, store):
        elsewhere = await harness.store()
        for number in range(20):
            mine = [a_job(f"a{number}", fingerprint="mine"), a_job(f"b{number}", fingerprint="mine")]
            theirs = [a_job(f"b{number}", fingerprint="theirs"), a_job(f"a{number}", fingerprint="theirs")]

            answers = await asyncio.gather(store.record(mine), elsewhere.record(theirs))

            for key, here, there in (("a", answers[0][0], answers[1][1]), ("b", answers[0][1], answers[1][0])):
                assert {here.recorded_as, there.recorded_as} == {NEW, CONFLICT}, key

    async def test_the_stores_clock_moves_on(self, harness, store):
        before = await store.now()
        await harness.pass_time(harness.moment)

        assert await store.now() - before >= harness.moment - timedelta(milliseconds=1)

    async def test_a_store_that_is_there_answers_a_ping(self, store):
        await store.ping()

    async def test_what_was_never_recorded_is_not_there(self, store):
        await recorded(store, "a")

        assert await store.entry("things", "b") is None
        assert await store.entry("no-such-workload", "a") is None
        assert await try_claim(store, "id-b") == [Unrecorded("id-b")]
