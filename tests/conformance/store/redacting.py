"""Redacting: a person's data is removed from a settled job, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.transitions import Expire
from tests.conformance.vocabulary import (
    AWKWARD,
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
    letter_of,
    recorded,
    retried,
    settled,
)


class Redacting:
    @pytest.mark.parametrize(
        "end", [completed(), dead_lettered(), Expire(DAY)], ids=lambda transition: type(transition).__name__
    )
    async def test_a_settled_job_gets_another_body_and_keeps_everything_else(self, harness, store, end):
        await recorded(store)
        await settled(store, await claimed(store), end)
        stood = await entry_of(store)

        assert await store.redact(THINGS, {"id-k": AWKWARD}) == ["id-k"]

        entry = await entry_of(await harness.store())
        assert entry.body == AWKWARD
        assert replace(entry, body=stood.body, updated_at=stood.updated_at) == stood

    async def test_a_job_that_was_redacted_is_still_known(self, store):
        await recorded(store)
        await settled(store, await claimed(store), completed())
        await store.redact(THINGS, {"id-k": "{}"})

        same, other = await store.record([a_job(), a_job(fingerprint="other")])

        assert (same.recorded_as, other.recorded_as) == (RecordedAs.DUPLICATE, RecordedAs.CONFLICT)

    async def test_the_letters_of_all_generations_are_redacted_too(self, store):
        first = await dead_and_reviewed(store)
        await store.replay([(first, None)], actor="ana", reason="mended")
        await settled(store, await claimed(store), dead_lettered(generation=2))
        second = dead_lettered(generation=2).letter_id
        stood = [await letter_of(store, letter) for letter in (first, second)]

        assert await store.redact(THINGS, {"id-k": '{"forgotten": true}'}) == ["id-k"]

        letters = [await letter_of(store, letter) for letter in (first, second)]
        assert [letter.body for letter in letters] == ['{"forgotten": true}'] * 2
        for letter, before in zip(letters, stood, strict=True):
            assert replace(letter, body=before.body, updated_at=before.updated_at) == before

    async def test_a_job_that_waits_or_runs_is_not_touched(self, store):
        await store.record([a_job("new"), a_job("failed"), a_job("running")])
        await settled(store, await claimed(store, "failed"), retried(HOUR))
        await claimed(store, "running")
        letter = await dead_and_reviewed(store, "replayed")
        await store.replay([(letter, None)], actor="ana", reason="mended")
        keys = ("new", "failed", "running", "replayed")
        stood = [await entry_of(store, key) for key in keys]

        assert await store.redact(THINGS, {f"id-{key}": "{}" for key in keys}) == []

        assert [await entry_of(store, key) for key in keys] == stood
        assert (await letter_of(store, letter)).body == a_job("replayed").body

    async def test_only_the_named_jobs_of_the_workload_are_touched(self, store):
        letters = {key: await dead(store, key) for key in ("a", "b", "c")}
        other = await dead(store, "a", workload=OTHERS)

        changed = await store.redact(THINGS, {"id-c": '"c"', "id-never": '"never"', "id-a": '"a"'})

        assert changed == ["id-c", "id-a"]
        bodies = {key: (await letter_of(store, letter)).body for key, letter in letters.items()}
        assert bodies == {"a": '"a"', "b": a_job("b").body, "c": '"c"'}
        assert (await entry_of(store, "b")).body == a_job("b").body
        assert (await entry_of(store, "a", OTHERS)).body == a_job("a").body
        assert (await letter_of(store, other)).body == a_job("a").body

    async def test_an_empty_batch_redacts_nothing(self, store):
        assert await store.redact(THINGS, {}) == []

    async def test_a_job_can_be_redacted_twice(self, store):
        await recorded(store)
        await settled(store, await claimed(store), completed())

        assert await store.redact(THINGS, {"id-k": "{}"}) == ["id-k"]
        assert await store.redact(THINGS, {"id-k": "{}"}) == ["id-k"]
