"""Records without a job: writing them, listing the newest, and pruning them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.errors import EffectRefused, InvalidQuery
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.times import isoformat
from tests.conformance.store.reading import pages
from tests.conformance.vocabulary import (
    AWKWARD,
    DAY,
    THINGS,
    claimed,
    completed,
    recorded,
    settled,
)


class Applying:
    async def test_effects_without_a_job_are_committed(self, harness, store):
        await store.apply([Upsert("box", "gone", {"colour": "grey"})])

        await store.apply(
            [
                Upsert("box", "x", {"colour": "red"}, {"made": "here"}),
                Upsert("box", "x", {"size": 3}),
                Delete("box", "gone"),
                Upsert("cellar", "y", {"n": 1}),
            ],
        )

        elsewhere = await harness.store()
        record = await elsewhere.get("box", "x")
        assert [record[name] for name in ("thingId", "colour", "made", "size")] == ["x", "red", "here", 3]
        assert record["createdAt"] == record["updatedAt"]
        assert await elsewhere.get("box", "gone") is None
        assert (await elsewhere.get("cellar", "y"))["n"] == 1

    async def test_a_collection_may_belong_to_no_workload(self, store):
        await store.apply([Upsert("atlas", "rome", {"kind": "city"}), Upsert("atlas", "etna", {"kind": "hill"})])
        await recorded(store)
        await settled(store, await claimed(store), completed(Upsert("atlas", "rome", {"visited": True})))

        cities = await store.find_records(RecordQuery(collection="atlas", where={"kind": "city"}), Page())
        assert [(each["place"], each["visited"]) for each in cities.items] == [("rome", True)]

    async def test_a_stale_effect_is_skipped(self, store):
        await store.apply([Upsert("box", "x", {"at": "2026-01-02"})])

        await store.apply([Upsert("box", "x", {"at": "2026-01-01"}, only_if_newer="at"), Upsert("box", "y", {})])

        assert (await store.get("box", "x"))["at"] == "2026-01-02"
        assert await store.get("box", "y") is not None

    @pytest.mark.parametrize(
        "effect",
        [
            Upsert("no_such_collection", "x", {}),
            Upsert("box", "", {}),
            Upsert("box", "x", {"a": float("nan")}),
            Upsert("box", "x", {}, only_if_newer="a"),
        ],
        ids=["unknown collection", "no key", "not JSON", "compares what it does not set"],
    )
    async def test_with_an_impossible_effect_none_is_applied(self, store, effect):
        with pytest.raises(EffectRefused):
            await store.apply([Upsert("box", "good", {}), effect])

        assert await store.get("box", "good") is None

    async def test_an_empty_batch_applies_nothing(self, store):
        await store.apply([])

        assert await store.counts(THINGS) == {}


AT = "2026-01-01T00:00:00.{:03}Z"


def slips():
    """Records of two owners. Some have the same instant, and two have none."""
    times = {"e": 3, "a": 1, "d": 3, "b": 2, "c": 3, AWKWARD: 2, "f": 1}
    dated = {
        key: {"at": AT.format(time), "owner": "ana" if key != "f" else "bo", "state": "odd" if time % 2 else "even"}
        for key, time in times.items()
    }
    return dated | {"undated": {"owner": "ana"}, "nothing": {"owner": "ana", "at": None}}


NEWEST = ["e", "d", "c", *sorted(["b", AWKWARD], reverse=True), "f", "a"]


class ListingTheNewest:
    @pytest.fixture
    async def drawer(self, store):
        await store.apply([Upsert("drawer", key, fields) for key, fields in slips().items()])
        return store

    async def test_records_are_listed_newest_first(self, drawer):
        async def listed(**where):
            query = RecordQuery(collection="drawer", where=where, newest_by="at")
            return [each["slipId"] for each in (await drawer.find_records(query, Page(100))).items]

        assert await listed() == NEWEST
        assert await listed(owner="ana") == [key for key in NEWEST if key != "f"]
        assert await listed(owner="ana", state="odd") == ["e", "d", "c", "a"]
        assert await listed(owner="nobody") == []

    async def test_a_record_comes_back_whole(self, drawer):
        query = RecordQuery(collection="drawer", newest_by="at")

        (newest,) = (await drawer.find_records(query, Page(1))).items

        assert newest == await drawer.get("drawer", "e")
        assert newest["at"] == AT.format(3)

    async def test_pages_of_the_newest_neither_skip_nor_repeat(self, drawer):
        query = RecordQuery(collection="drawer", newest_by="at")
        for size in (1, 2, 3, 7):
            items = await pages(lambda page: drawer.find_records(query, page), size)
            assert [each["slipId"] for each in items] == NEWEST

    async def test_pages_of_the_newest_stand_still_while_others_arrive(self, drawer):
        query = RecordQuery(collection="drawer", where={"owner": "ana"}, newest_by="at")
        first = await drawer.find_records(query, Page(2))
        await drawer.apply(
            [Upsert("drawer", key, {"owner": "ana", "at": AT.format(3)}) for key in ("zz", "dd")]
            + [Upsert("drawer", "later", {"owner": "ana", "at": AT.format(9)}), Delete("drawer", "d")],
        )

        second = await drawer.find_records(query, Page(10, first.next))

        assert [each["slipId"] for each in first.items] == ["e", "d"]
        assert [each["slipId"] for each in second.items] == [key for key in NEWEST[2:] if key != "f"]
        assert second.next is None

    @pytest.mark.parametrize("name", ["createdAt", "updatedAt"])
    async def test_the_stores_own_instants_can_be_listed_by(self, harness, store, name):
        for key in ("b", "c", "a"):
            await store.apply([Upsert("drawer", key, {})])
            await harness.pass_time(harness.moment)

        found = await store.find_records(RecordQuery(collection="drawer", newest_by=name), Page(2))
        rest = await store.find_records(RecordQuery(collection="drawer", newest_by=name), Page(2, found.next))

        assert [each["slipId"] for each in [*found.items, *rest.items]] == ["a", "c", "b"]

    async def test_records_of_one_instant_keep_their_order_from_page_to_page(self, drawer):
        query = RecordQuery(collection="drawer", newest_by="createdAt")

        items = await pages(lambda page: drawer.find_records(query, page), 2)

        assert [each["slipId"] for each in items] == sorted(slips(), reverse=True)

    @pytest.mark.parametrize("name", ["owner", "never", "slipId", "", "at; --"])
    async def test_what_is_no_instant_is_refused(self, drawer, name):
        with pytest.raises(InvalidQuery):
            await drawer.find_records(RecordQuery(collection="drawer", newest_by=name), Page())

    async def test_a_cursor_of_another_listing_is_refused(self, drawer):
        by_key = await drawer.find_records(RecordQuery(collection="drawer"), Page(2))
        for cursor in (by_key.next, "not a cursor", "W10", "WzEsMl0", "e30"):  # the last three: [], [1,2], {}
            with pytest.raises(InvalidQuery):
                await drawer.find_records(RecordQuery(collection="drawer", newest_by="at"), Page(2, cursor))


class PruningRecords:
    async def test_a_record_is_forgotten_once_its_time_has_passed(self, harness, store):
        now = await store.now()
        await store.apply(
            [
                Upsert("drawer", "soon", {"until": isoformat(now + harness.moment)}),
                Upsert("drawer", "later", {"until": isoformat(now + DAY)}),
                Upsert("drawer", "never", {"at": isoformat(now - DAY)}),
                Upsert("drawer", "not said", {"until": None}),
                Upsert("atlas", "soon", {"until": isoformat(now + harness.moment)}),
                Upsert("box", "soon", {"until": isoformat(now - DAY)}),
            ],
        )
        assert (await store.prune(100)).records == 0

        await harness.pass_time(harness.moment + timedelta(milliseconds=1))
        pruned = await store.prune(100)

        assert (pruned.records, pruned.entries, dict(pruned.letters)) == (2, 0, {})
        assert await store.get("drawer", "soon") is None
        assert await store.get("atlas", "soon") is None
        for collection, key in (("drawer", "later"), ("drawer", "never"), ("drawer", "not said"), ("box", "soon")):
            assert await store.get(collection, key) is not None

    async def test_a_record_whose_time_was_moved_stays(self, harness, store):
        now = await store.now()
        await store.apply([Upsert("drawer", "x", {"until": isoformat(now + harness.moment)})])
        await store.apply([Upsert("drawer", "x", {"until": isoformat(now + DAY)})])
        await harness.pass_time(2 * harness.moment)

        assert (await store.prune(100)).records == 0
        assert await store.get("drawer", "x") is not None

    async def test_no_more_records_are_forgotten_than_asked(self, harness, store):
        until = isoformat(await store.now() + harness.moment)
        await store.apply(
            [Upsert("drawer", f"k{n}", {"until": until}) for n in range(3)]
            + [Upsert("atlas", f"k{n}", {"until": until}) for n in range(2)],
        )
        await harness.pass_time(harness.moment + timedelta(milliseconds=1))

        assert [(await store.prune(2)).records for _ in range(4)] == [2, 2, 1, 0]

    async def test_records_and_entries_are_forgotten_in_one_go(self, harness, store):
        until = isoformat(await store.now() + harness.moment)
        await recorded(store)
        effect = Upsert("drawer", "x", {"until": until})
        await settled(store, await claimed(store), completed(effect, retention=harness.moment))
        await harness.pass_time(harness.moment + timedelta(milliseconds=1))

        pruned = await store.prune(100)

        assert (pruned.entries, pruned.records) == (1, 1)
