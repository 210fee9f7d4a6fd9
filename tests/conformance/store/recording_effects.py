"""Recording with effects: a new job and its effects are committed together, or neither is (I2, I3)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import RecordedAs
from tests.conformance.vocabulary import THINGS, a_job, dead_and_reviewed, entry_of, letter_of, recorded

NEW, DUPLICATE, CONFLICT = RecordedAs.NEW, RecordedAs.DUPLICATE, RecordedAs.CONFLICT


def upsert(key, **fields):
    return Upsert("box", key, fields)


async def transitions(store, *entries):
    return [answer.recorded_as for answer in await store.record(entries)]


class RecordingEffects:
    async def test_the_effects_of_a_new_job_are_committed_with_it(self, harness, store):
        await store.apply([upsert("old", colour="grey")])
        effects = [upsert("x", colour="red"), Upsert("cellar", "y", {"n": 1}), Delete("box", "old")]
        before = await store.now()

        assert await transitions(store, a_job(effects=effects)) == [NEW]

        elsewhere = await harness.store()
        record = await elsewhere.get("box", "x")
        assert (record["thingId"], record["colour"]) == ("x", "red")
        assert (await elsewhere.get("cellar", "y"))["n"] == 1
        assert await elsewhere.get("box", "old") is None
        assert (await entry_of(elsewhere)).first_seen_at >= before

    async def test_a_duplicate_or_a_conflict_writes_no_effects(self, store):
        await recorded(store, effects=[upsert("x", colour="first")])

        answers = await transitions(
            store,
            a_job(effects=[upsert("x", colour="again")]),
            a_job(fingerprint="other", effects=[upsert("x", colour="other")]),
            a_job("taken", job_id="id-k", effects=[upsert("x", colour="taken")]),
        )

        assert answers == [DUPLICATE, CONFLICT, CONFLICT]
        assert (await store.get("box", "x"))["colour"] == "first"

    async def test_a_new_job_adds_to_a_number_once(self, store):
        adding = [Upsert("box", "x", {}, add={"n": 3})]
        answers = await transitions(store, a_job(effects=adding), a_job(effects=adding), a_job("b", effects=adding))
        assert answers == [NEW, DUPLICATE, NEW]
        assert await transitions(store, a_job(effects=adding)) == [DUPLICATE]
        assert (await store.get("box", "x"))["n"] == 6

    async def test_of_equal_keys_in_one_batch_the_first_writes_its_effects(self, store):
        answers = await transitions(
            store,
            a_job("a", effects=[upsert("x", a=1)]),
            a_job("a", effects=[upsert("x", again=1)]),
            a_job("b", effects=[upsert("x", b=1)]),
            a_job("a", fingerprint="other", effects=[upsert("x", other=1)]),
            a_job("c", job_id="id-b", effects=[upsert("x", taken=1)]),
        )

        record = await store.get("box", "x")
        assert answers == [NEW, DUPLICATE, NEW, CONFLICT, CONFLICT]
        assert [record.get(name) for name in ("a", "b", "again", "other", "taken")] == [1, 1, None, None, None]

    async def test_jobs_with_and_without_effects_share_a_batch(self, store):
        await recorded(store, "known")
        batch = [
            a_job("plain"),
            a_job("told", effects=[upsert("x", colour="red")]),
            a_job("known", effects=[upsert("y", colour="red")]),
            a_job("last"),
        ]

        assert await transitions(store, *batch) == [NEW, NEW, DUPLICATE, NEW]
        assert await store.counts(THINGS) == {"received": 4}
        assert await store.get("box", "x") is not None
        assert await store.get("box", "y") is None

    async def test_effects_on_one_record_are_folded_in_the_order_of_the_jobs(self, store):
        await store.record([a_job(f"k{n}", effects=[upsert("x", last=n, **{f"k{n}": True})]) for n in range(5)])

        record = await store.get("box", "x")
        assert record["last"] == 4
        assert all(record[f"k{n}"] for n in range(5))

    @pytest.mark.parametrize(
        "effect",
        [
            Upsert("no_such_collection", "x", {"a": 1}),
            Upsert("box", "", {"a": 1}),
            Upsert("box", "x", {"a": float("nan")}),
            Upsert("box", "x", {"a": "half of a character: \ud800"}),
            Upsert("box", "x", {"a": 1}, only_if_newer="b"),
            Upsert("box", "there", {"at": 5}, only_if_newer="at"),
        ],
        ids=["unknown collection", "no key", "not JSON", "not text", "compares what it does not set", "uncomparable"],
    )
    async def test_a_batch_with_an_impossible_effect_records_nothing(self, store, effect):
        await store.apply([upsert("there", at="2026-01-01")])
        stands = await store.get("box", "there")
        good = a_job("good", effects=[upsert("good", colour="red")])

        with pytest.raises(EffectRefused) as refused:
            await store.record([good, a_job("plain"), a_job("bad", effects=[effect])])

        assert refused.value.job_id == "id-bad"
        assert await store.counts(THINGS) == {}
        assert await store.get("box", "good") is None
        assert await store.get("box", "there") == stands
        assert await transitions(store, good, a_job("plain")) == [NEW, NEW]

    async def test_a_stale_effect_does_not_keep_a_job_out(self, store):
        await store.apply([upsert("x", at="2026-01-02")])
        late = Upsert("box", "x", {"at": "2026-01-01"}, only_if_newer="at")

        assert await transitions(store, a_job(effects=[late])) == [NEW]
        assert (await store.get("box", "x"))["at"] == "2026-01-02"

    async def test_of_two_processes_that_race_for_a_key_the_winner_writes_its_effects(self, harness, store):
        elsewhere = await harness.store()
        for number in range(20):
            jobs = [
                a_job(f"k{number}", body=f'"{who}"', effects=[upsert(f"x{number}", **{f"by{who}": True})])
                for who in range(4)
            ]

            answers = await asyncio.gather(
                *(racer.record([job]) for racer, job in zip([store, elsewhere] * 2, jobs, strict=True)),
            )

            outcome = [answer.recorded_as for (answer,) in answers]
            record = await store.get("box", f"x{number}")
            assert sorted(outcome) == [DUPLICATE] * 3 + [NEW]
            assert [name for name in record if name.startswith("by")] == [f"by{outcome.index(NEW)}"]

    async def test_no_effect_on_a_shared_record_is_lost(self, harness, store):
        elsewhere = await harness.store()

        await asyncio.gather(
            *(
                racer.record([a_job(f"k{n}", effects=[upsert("x", **{f"k{n}": True})])])
                for n, racer in enumerate([store, elsewhere] * 10)
            ),
        )

        record = await store.get("box", "x")
        assert [n for n in range(20) if f"k{n}" not in record] == []

    async def test_a_large_batch_is_recorded_with_its_effects(self, store):
        await recorded(store, "k7")
        batch = [
            a_job(f"k{n}", effects=[upsert(f"s{n}", n=n), Upsert("cellar", f"c{n}", {"n": n})]) for n in range(256)
        ]

        answers = await transitions(store, *batch)

        assert [n for n, recorded_as in enumerate(answers) if recorded_as is not NEW] == [7]
        assert await store.get("box", "s7") is None
        for n in (0, 8, 255):
            assert (await store.get("box", f"s{n}"))["n"] == (await store.get("cellar", f"c{n}"))["n"] == n

    async def test_a_replay_as_a_new_job_writes_that_jobs_effects(self, store):
        letter = await dead_and_reviewed(store)
        new = a_job("again", replay_of="k", effects=[upsert("x", colour="red")])

        assert await store.replay([(letter, new)], actor="ana", reason="mended") == [letter]

        assert (await store.get("box", "x"))["colour"] == "red"
        assert (await letter_of(store, letter)).replayed_as == "again"

    async def test_new_jobs_are_queued_if_the_store_publishes(self, store):
        (answer,) = await store.record([a_job()])

        assert answer.queued is store.publishes
