"""Effects: written with the transition or not at all, in order; an older effect never replaces a newer (I3, I16)."""

from __future__ import annotations

import asyncio
import itertools
from datetime import datetime

import pytest

from holdfast.contracts.effects import IGNORED_STALE, Delete, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import Status
from tests.conformance.vocabulary import (
    AWKWARD,
    THINGS,
    claimed,
    completed,
    dead_lettered,
    entry_of,
    recorded,
    recorded_and_claimed,
    settled,
    settlement,
)


def instant(text: str) -> datetime:
    """The store's ISO-8601: UTC, milliseconds, 24 characters."""
    assert len(text) == 24
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


_numbers = itertools.count(1)


async def applied(store, *batches):
    """Settle one new job for each list of effects, all in one batch; returns the answers."""
    keys = [f"job-{next(_numbers)}" for _ in batches]
    claims = await recorded_and_claimed(store, *keys)
    return await store.settle(
        [settlement(claim, completed(*effects)) for claim, effects in zip(claims, batches, strict=True)],
    )


def dated(at: str, **fields) -> Upsert:
    return Upsert("box", "x", {"at": at} | fields, only_if_newer="at")


class Effects:
    async def test_an_upsert_creates_the_record(self, store):
        before = await store.now()
        await applied(store, [Upsert("box", "x", {"colour": "red", "size": 3}, {"made": "here", "size": 0})])
        after = await store.now()

        record = dict(await store.get("box", "x"))
        created, updated = instant(record.pop("createdAt")), instant(record.pop("updatedAt"))
        assert record == {"thingId": "x", "colour": "red", "size": 3, "made": "here"}
        assert before <= created == updated <= after

    async def test_an_upsert_replaces_the_named_fields_and_leaves_the_others(self, harness, store):
        await applied(store, [Upsert("box", "x", {"colour": "red", "parts": {"a": 1, "b": 2}}, {"made": "here"})])
        first = await store.get("box", "x")
        await harness.pass_time(harness.moment)

        await applied(store, [Upsert("box", "x", {"parts": {"c": 3}}, {"made": "there", "extra": 1})])

        second = await store.get("box", "x")
        assert (second["colour"], second["parts"], second["made"]) == ("red", {"c": 3}, "here")
        assert "extra" not in second
        assert second["createdAt"] == first["createdAt"]
        assert second["updatedAt"] > first["updatedAt"]

    async def test_records_and_collections_are_apart(self, store):
        await applied(
            store,
            [Upsert("box", "x", {"colour": "red"}), Upsert("cellar", "x", {"colour": "blue"})],
            [Upsert("box", "X", {"colour": "green"})],
        )

        assert (await store.get("box", "x"))["colour"] == "red"
        assert (await store.get("box", "X"))["colour"] == "green"
        assert (await store.get("cellar", "x"))["colour"] == "blue"
        assert (await store.get("cellar", "x"))["name"] == "x"

    async def test_effects_on_one_record_are_folded_in_order(self, store):
        await applied(
            store,
            [Upsert("box", "x", {"colour": "red", "a": 1}, {"made": "first"})],
            [Upsert("box", "x", {"colour": "blue", "b": 2}, {"made": "second"})],
            [Upsert("box", "x", {"colour": "green"}), Upsert("box", "x", {"c": 3})],
        )

        record = await store.get("box", "x")
        assert {name: record.get(name) for name in ("colour", "a", "b", "c", "made")} == {
            "colour": "green",
            "a": 1,
            "b": 2,
            "c": 3,
            "made": "first",
        }

    async def test_numbers_are_added_to_what_is_there(self, store):
        await applied(store, [Upsert("box", "x", {"colour": "red"}, {"n": 10}, add={"n": 5, "m": 2})])
        await applied(
            store,
            [Upsert("box", "x", {}, add={"n": 1}), Upsert("box", "x", {}, add={"n": -3})],
            [Upsert("box", "x", {"colour": "blue"}, add={"n": 100})],
        )
        record = await store.get("box", "x")
        assert (record["colour"], record["n"], record["m"]) == ("blue", 113, 2)

    async def test_no_addition_of_two_processes_is_lost(self, harness, store):
        other = await harness.store()
        await asyncio.gather(
            *(applied(each, [Upsert("box", "x", {}, add={"n": 1})]) for each in (store, other) for _ in range(5))
        )
        assert (await store.get("box", "x"))["n"] == 10

    async def test_an_older_effect_is_skipped_and_noted(self, store):
        await applied(store, [dated("2026-01-02", colour="new")])

        (answer,) = await applied(store, [dated("2026-01-01", colour="old")])

        assert (answer.status, answer.note) == (Status.PROCESSED, IGNORED_STALE)
        assert (await store.get("box", "x"))["colour"] == "new"
        assert (await entry_of(store, answer.job_id.removeprefix("id-"))).note == IGNORED_STALE

    async def test_the_result_of_a_job_whose_effect_was_skipped_has_a_note(self, store):
        newer, older, other = await recorded_and_claimed(store, "newer", "older", "other")

        await store.settle(
            [
                settlement(newer, completed(dated("2026-01-02"), result={"colour": "new"})),
                settlement(older, completed(dated("2026-01-01"), result={"colour": "old"})),
                settlement(other, completed(dated("2026-01-01"))),
            ],
        )

        results = [(await entry_of(store, key)).result for key in ("newer", "older", "other")]
        assert results == [{"colour": "new"}, {"note": IGNORED_STALE, "colour": "old"}, None]

    @pytest.mark.parametrize("at", ["2026-01-02", "2026-01-03"])
    async def test_an_equal_or_newer_effect_is_applied(self, store, at):
        await applied(store, [dated("2026-01-02", colour="first")])

        (answer,) = await applied(store, [dated(at, colour="second")])

        assert (answer.status, answer.note) == (Status.PROCESSED, None)
        assert (await store.get("box", "x"))["colour"] == "second"

    async def test_an_older_effect_is_skipped_within_a_batch_too(self, store):
        answers = await applied(
            store,
            [dated("2026-01-02", colour="second")],
            [dated("2026-01-01", colour="first"), Upsert("box", "y", {"colour": "other"})],
            [dated("2026-01-03", colour="third")],
            [dated("2026-01-02", colour="late")],
        )

        assert [answer.note for answer in answers] == [None, IGNORED_STALE, None, IGNORED_STALE]
        assert (await store.get("box", "x"))["colour"] == "third"
        assert (await store.get("box", "y"))["colour"] == "other"

    async def test_a_record_without_the_field_is_older_than_all(self, store):
        await applied(store, [Upsert("box", "x", {"colour": "undated"})])

        (answer,) = await applied(store, [dated("1970-01-01", colour="dated")])

        assert answer.note is None
        assert (await store.get("box", "x"))["colour"] == "dated"

    async def test_a_record_may_belong_to_the_one_who_wrote_it_first(self, store):
        def owned(who, colour):
            return Upsert("box", "x", {"owner": who, "colour": colour}, only_if_same={"owner": "OF_ANOTHER"})

        await applied(store, [owned("a", "red")], [owned("a", "blue")])
        with pytest.raises(EffectRefused) as refused:
            await applied(store, [owned("b", "green"), Upsert("box", "y", {"colour": "green"})])

        assert refused.value.code == "OF_ANOTHER"
        assert (await store.get("box", "x"))["colour"] == "blue"
        assert await store.get("box", "y") is None, "all effects of the job, or none"

    async def test_a_record_without_an_owner_gets_one(self, store):
        await applied(store, [Upsert("box", "x", {"colour": "red"})])
        effect = Upsert("box", "x", {"owner": "a"}, only_if_same={"owner": "OF_ANOTHER"})
        await applied(store, [effect])
        assert (await store.get("box", "x"))["owner"] == "a"

    async def test_numbers_are_compared_as_numbers(self, store):
        await applied(store, [Upsert("box", "x", {"version": 9}, only_if_newer="version")])

        await applied(store, [Upsert("box", "x", {"version": 10}, only_if_newer="version")])

        assert (await store.get("box", "x"))["version"] == 10

    async def test_a_delete_removes_the_record(self, store):
        await applied(store, [Upsert("box", "x", {"colour": "red"}), Upsert("box", "y", {"colour": "red"})])

        answers = await applied(store, [Delete("box", "x")], [Delete("box", "never")])

        assert [answer.status for answer in answers] == [Status.PROCESSED] * 2
        assert await store.get("box", "x") is None
        assert await store.get("box", "y") is not None

    async def test_deletes_and_upserts_are_folded_in_order(self, store):
        await applied(store, [Upsert("box", "x", {"colour": "red", "a": 1}, {"made": "first"})])

        await applied(
            store,
            [Delete("box", "x")],
            [Upsert("box", "x", {"colour": "blue"}, {"made": "again"})],
            [Upsert("box", "y", {"colour": "blue"})],
            [Delete("box", "y")],
        )

        record = await store.get("box", "x")
        assert (record["colour"], record["made"], record.get("a")) == ("blue", "again", None)
        assert await store.get("box", "y") is None

    async def test_values_come_back_as_they_went_in(self, store):
        values = {
            "text": AWKWARD,
            "long": "é" * 100_000,
            "big": 2**53 - 1,
            "small": -1.5,
            "yes": True,
            "nothing": None,
            "empty": [{}, [], ""],
            "nested": {"a": {"b": [1, {"c": AWKWARD}]}},
        }
        await applied(store, [Upsert("box", AWKWARD, values)])

        record = dict(await store.get("box", AWKWARD))

        del record["createdAt"], record["updatedAt"]
        assert record == {"thingId": AWKWARD, **values}
        assert record["yes"] is True

    @pytest.mark.parametrize(
        "effect",
        [
            Upsert("no_such_collection", "x", {"a": 1}),
            Delete("no_such_collection", "x"),
            Upsert("box", "", {"a": 1}),
            Upsert("box", "th\0ere", {"a": 1}),
            Upsert("box", "x", {"a": 1}, only_if_same={"b": "CODE"}),
            Upsert("box", "x", {"a": float("nan")}),
            Upsert("box", "x", {"a": float("inf")}),
            Upsert("box", "x", {"a": object()}),
            Upsert("box", "x", {"a": "half of a character: \ud800"}),
            Upsert("box", "x", {"a": 1}, only_if_newer="b"),
            Upsert("box", "there", {"at": 5}, only_if_newer="at"),
            Upsert("box", "there", {}, add={"at": 5}),
        ],
        ids=[
            "unknown collection",
            "delete in an unknown collection",
            "no key",
            "a key with NUL",
            "names an owner that it does not set",
            "not a number",
            "infinite",
            "not JSON",
            "not text",
            "compares what it does not set",
            "cannot be compared",
            "adds to text",
        ],
    )
    async def test_a_batch_with_an_impossible_effect_writes_nothing(self, store, effect):
        await applied(store, [Upsert("box", "there", {"at": "2026-01-01"})])
        stands = await store.get("box", "there")
        good, bad, dying = await recorded_and_claimed(store, "good", "bad", "dying")
        fine = settlement(good, completed(Upsert("box", "good", {"colour": "red"})))
        dead_lettering = settlement(dying, dead_lettered("dying"))

        with pytest.raises(EffectRefused) as refused:
            await store.settle([fine, settlement(bad, completed(effect)), dead_lettering])

        assert refused.value.job_id == "id-bad"
        assert await store.get("box", "good") is None
        assert await store.get("box", "there") == stands
        assert await store.letter(dead_lettered("dying").letter_id) is None
        for key in ("good", "bad", "dying"):
            assert (await entry_of(store, key)).status is Status.PROCESSING
        assert [answer.status for answer in await store.settle([fine, dead_lettering])] == [
            Status.PROCESSED,
            Status.DEAD_LETTERED,
        ]

    async def test_the_effects_of_a_stale_transition_are_not_even_looked_at(self, harness, store):
        await recorded(store)
        stale = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)
        await claimed(store)

        (answer,) = await store.settle([settlement(stale, completed(Upsert("no_such_collection", "x", {})))])

        assert answer.stale

    async def test_whichever_process_commits_last_the_newest_effect_stands(self, harness, store):
        elsewhere = await harness.store()
        claims = await recorded_and_claimed(store, *(f"k{n}" for n in range(40)))
        for number in range(0, 40, 2):
            older, newer = (
                settlement(claims[number + step], completed(dated(f"2026-01-{number + step:03}", who=number + step)))
                for step in (0, 1)
            )

            await asyncio.gather(store.settle([newer]), elsewhere.settle([older]))

            assert (await store.get("box", "x"))["who"] == number + 1

    async def test_no_write_to_a_shared_record_is_lost(self, harness, store):
        elsewhere = await harness.store()
        claims = await recorded_and_claimed(store, *(f"k{n}" for n in range(30)))

        await asyncio.gather(
            *(
                racer.settle([settlement(claim, completed(Upsert("box", "x", {claim.key: True})))])
                for racer, claim in zip([store, elsewhere] * 15, claims, strict=True)
            ),
        )

        record = await store.get("box", "x")
        assert [claim.key for claim in claims if claim.key not in record] == []
        assert await store.counts(THINGS) == {"processed": 30}

    async def test_another_process_reads_what_was_written(self, harness, store):
        await recorded(store)
        await settled(store, await claimed(store), completed(Upsert("box", "x", {"colour": "red"})))

        assert (await (await harness.store()).get("box", "x"))["colour"] == "red"
