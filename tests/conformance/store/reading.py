"""Reading: filters, counts and pages that neither skip nor repeat."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import asdict
from datetime import timedelta, timezone
from itertools import combinations

import pytest

from holdfast.contracts.dead_letters import ListedLetter, ReviewStatus
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.ledger import Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page, RecordQuery
from holdfast.stores.fields import names_of
from tests.conformance.vocabulary import (
    AWKWARD,
    MEGABYTE,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead,
    dead_and_reviewed,
    entry_of,
    keys_of_letters,
    letter_of,
    recorded,
    settled,
)

NOT_CURSORS = ["%%%", "not a cursor", "é", "\x00", "'; DROP TABLE"]


async def found(store, page=None, **query):
    slice_ = await store.find(EntryQuery(**({"workload": THINGS} | query)), page or Page(100))
    return [entry.key for entry in slice_.items]


async def pages(read, size):
    """All pages of a listing, and every item once."""
    items, cursor = [], None
    while True:
        slice_ = await read(Page(size, cursor))
        assert len(slice_.items) <= size
        items += slice_.items
        cursor = slice_.next
        if cursor is None:
            return items
        assert len(slice_.items) == size


class Reading:
    async def test_entries_are_found_newest_first(self, harness, store):
        for key in ("b", "a", "c"):
            await recorded(store, key)
            await harness.pass_time(harness.moment)
        await recorded(store, "x", workload=OTHERS)

        assert await found(store) == ["c", "a", "b"]
        assert await found(store, workload=OTHERS) == ["x"]
        assert await found(store, workload="no-such-workload") == []

    async def test_entries_are_found_by_status_and_label(self, store):
        await recorded(store, "a", labels={"colour": "red"})
        await recorded(store, "b", labels={"colour": AWKWARD})
        await recorded(store, "c", labels={})
        await settled(store, await claimed(store, "a"), completed())

        assert await found(store, status=Status.PROCESSED) == ["a"]
        assert await found(store, labels={"colour": "red"}) == ["a"]
        assert await found(store, labels={"colour": AWKWARD}) == ["b"]
        assert await found(store, labels={"colour": "red"}, status=Status.RECEIVED) == []

    async def test_entries_are_found_by_their_keys(self, harness, store):
        for key in ("acme:2", "acme:1", "acme", "acmf:3", "aCme:4", f"acme:{AWKWARD}", "acme\U0010ffff"):
            await recorded(store, key)
            await harness.pass_time(harness.moment)
        await recorded(store, "acme:1", workload=OTHERS)

        assert await found(store, key="acme") == ["acme"]
        assert await found(store, key="never") == []
        assert await found(store, key=AWKWARD) == []
        assert await found(store, key_prefix="acme:") == [f"acme:{AWKWARD}", "acme:1", "acme:2"]
        assert await found(store, key_prefix=f"acme:{AWKWARD}") == [f"acme:{AWKWARD}"]
        assert await found(store, key_prefix="acme") == [
            *("acme\U0010ffff", f"acme:{AWKWARD}", "acme", "acme:1", "acme:2"),
        ]
        assert await found(store, key_prefix="acme\U0010ffff") == ["acme\U0010ffff"]
        assert await found(store, key="acme:1", key_prefix="acme:") == ["acme:1"]
        assert await found(store, key="acme:1", key_prefix="other:") == []
        assert await found(store, key_prefix="acme:1", workload=OTHERS) == ["acme:1"]
        assert await found(store, key_prefix="%") == []
        assert len(await found(store, key_prefix="")) == 7

    async def test_entries_are_found_by_the_time_when_they_were_first_seen(self, harness, store):
        times = []
        for key in ("a", "b", "c"):
            await recorded(store, key)
            times.append((await entry_of(store, key)).first_seen_at)
            await harness.pass_time(harness.moment)
        a_bit = timedelta(microseconds=1)

        assert await found(store, seen_after=times[1]) == ["c", "b"]
        assert await found(store, seen_after=times[1] + a_bit) == ["c"]
        assert await found(store, seen_before=times[1]) == ["a"]
        assert await found(store, seen_before=times[1] + a_bit) == ["b", "a"]
        assert await found(store, seen_after=times[0], seen_before=times[2]) == ["b", "a"]
        assert await found(store, seen_after=times[2], seen_before=times[0]) == []
        elsewhere = times[1].astimezone(timezone(timedelta(hours=-3)))
        assert await found(store, seen_before=elsewhere) == ["a"]

    @pytest.mark.parametrize("status", [Status.PROCESSED, Status.RECEIVED])
    async def test_the_conditions_of_a_query_must_all_hold(self, harness, store, status):
        """Every combination of conditions, on a ledger where each of them alone would find too much."""
        times = []
        for number in range(12):
            key = f"{'acme' if number % 2 else 'other'}:{number}"
            await recorded(store, key, labels={"colour": "red" if number % 3 else "blue"})
            times.append((await entry_of(store, key)).first_seen_at)
            await harness.pass_time(harness.moment)
            if number % 4 > 1:
                await settled(store, await claimed(store, key), completed())
        entries = (await store.find(EntryQuery(workload=THINGS), Page(100))).items
        conditions = {
            "status": (status, lambda entry: entry.status is status),
            "labels": ({"colour": "red"}, lambda entry: entry.labels["colour"] == "red"),
            "key_prefix": ("acme:", lambda entry: entry.key.startswith("acme:")),
            "key": ("acme:7", lambda entry: entry.key == "acme:7"),
            "seen_after": (times[2], lambda entry: entry.first_seen_at >= times[2]),
            "seen_before": (times[11], lambda entry: entry.first_seen_at < times[11]),
        }

        for size in range(1, len(conditions) + 1):
            for names in combinations(conditions, size):
                query = EntryQuery(workload=THINGS, **{name: conditions[name][0] for name in names})
                expected = [each.key for each in entries if all(conditions[name][1](each) for name in names)]
                listed = await pages(lambda page, query=query: store.find(query, page), 2)
                assert [entry.key for entry in listed] == expected, names

    async def test_a_page_goes_on_where_many_jobs_were_seen_at_once(self, store):
        await store.record([a_job(f"k{n}") for n in range(9)])
        seen = (await entry_of(store, "k0")).first_seen_at
        query = EntryQuery(workload=THINGS, seen_after=seen, key_prefix="k", labels={"colour": "red"})

        listed = await pages(lambda page: store.find(query, page), 2)

        assert sorted(entry.key for entry in listed) == [f"k{n}" for n in range(9)]

    async def test_a_query_that_no_store_can_answer_is_refused(self, store):
        now = await store.now()
        refused = [
            {"key": "half \ud800"},
            {"key_prefix": "half \ud800"},
            {"labels": {"colour": "half \ud800"}},
            {"key_prefix": "\U0010ffff"},
            {"seen_after": now.replace(tzinfo=None)},
            {"seen_before": now.replace(year=9999)},
            {"seen_before": now.replace(year=1)},
        ]

        for each in refused:
            with pytest.raises(InvalidQuery):
                await found(store, **each)
        assert await found(store, key_prefix="\ud7ff") == []

    async def test_entries_cannot_be_found_by_a_label_that_has_no_index(self, store):
        with pytest.raises(InvalidQuery):
            await found(store, labels={"size": "3"})
        with pytest.raises(InvalidQuery):
            await found(store, labels={"x' OR 1=1 --": "3"})

    async def test_pages_of_entries_neither_skip_nor_repeat(self, store):
        await store.record([a_job(f"k{n}") for n in range(7)])
        listed = await found(store)

        for size in (1, 2, 3, 7, 8):
            items = await pages(lambda page: store.find(EntryQuery(workload=THINGS), page), size)
            assert [entry.key for entry in items] == listed

    async def test_pages_of_entries_stand_still_while_others_arrive(self, store):
        await store.record([a_job(f"k{n}") for n in range(4)])
        listed = await found(store)
        first = await store.find(EntryQuery(workload=THINGS), Page(2))
        await store.record([a_job("newer"), a_job("newest")])
        await settled(store, await claimed(store, listed[2]), completed())

        second = await store.find(EntryQuery(workload=THINGS), Page(2, first.next))

        assert [entry.key for entry in [*first.items, *second.items]] == listed
        assert second.next is None

    async def test_entries_are_counted_by_status(self, store):
        await store.record([a_job("a"), a_job("b"), a_job("c"), a_job("x", workload=OTHERS)])
        await settled(store, await claimed(store, "a"), completed())
        await claimed(store, "b")

        assert await store.counts(THINGS) == {"processed": 1, "processing": 1, "received": 1}
        assert await store.counts("no-such-workload") == {}

    @pytest.mark.parametrize("cursor", NOT_CURSORS)
    async def test_what_is_no_cursor_is_refused(self, store, cursor):
        page = Page(10, cursor)
        await dead(store)

        with pytest.raises(InvalidQuery):
            await store.find(EntryQuery(workload=THINGS), page)
        with pytest.raises(InvalidQuery):
            await store.letters(LetterQuery(), page)
        with pytest.raises(InvalidQuery):
            await store.find_records(RecordQuery(collection="box"), page)


class ReadingLetters:
    async def test_letters_are_found_oldest_first(self, store):
        for key in ("b", "a", "c"):
            await dead(store, key)

        assert await keys_of_letters(store) == ["b", "a", "c"]
        assert await store.letter("dl_never") is None

    async def test_letters_are_found_by_each_of_their_facts(self, store):
        await dead(store, "a", dead_letter={"reason_code": "TIMEOUT_EXHAUSTED"}, labels={"colour": "red", "size": "3"})
        await dead(store, "b", labels={"colour": AWKWARD, "odd.name 'x'": "y"})
        await dead_and_reviewed(store, "c", labels={"colour": "red"})
        await dead(store, "a", workload=OTHERS)

        assert await keys_of_letters(store, workload=THINGS) == ["a", "b", "c"]
        assert await keys_of_letters(store, workload=OTHERS, key="a") == ["a"]
        assert await keys_of_letters(store, workload=THINGS, key="b") == ["b"]
        assert await keys_of_letters(store, key="never") == []
        assert await keys_of_letters(store, reason_code="TIMEOUT_EXHAUSTED") == ["a"]
        assert await keys_of_letters(store, review_status=ReviewStatus.REVIEWED) == ["c"]
        assert await keys_of_letters(store, workload=THINGS, review_status=ReviewStatus.PENDING) == ["a", "b"]
        assert await keys_of_letters(store, workload=THINGS, labels={"colour": "red"}) == ["a", "c"]
        assert await keys_of_letters(store, labels={"colour": "red", "size": "3"}) == ["a"]
        assert await keys_of_letters(store, labels={"colour": AWKWARD}) == ["b"]
        assert await keys_of_letters(store, labels={"odd.name 'x'": "y"}) == ["b"]
        assert await keys_of_letters(store, labels={"never": "red"}) == []

    async def test_letters_are_found_by_their_time(self, harness, store):
        times = []
        for key in ("a", "b", "c"):
            times.append(await store.now())
            await harness.pass_time(harness.moment)
            await dead(store, key)
            await harness.pass_time(harness.moment)

        assert await keys_of_letters(store, created_after=times[1]) == ["b", "c"]
        assert await keys_of_letters(store, created_before=times[1]) == ["a"]
        assert await keys_of_letters(store, created_after=times[1], created_before=times[2]) == ["b"]
        assert await keys_of_letters(store, created_before=times[0]) == []

    async def test_pages_of_letters_stand_still_while_others_arrive(self, store):
        for number in range(5):
            await dead(store, f"k{number}")
        query = LetterQuery(review_status=ReviewStatus.PENDING)
        first = await store.letters(query, Page(2))
        await store.review([first.items[0].id], actor="ana", reason="seen")
        await dead(store, "newer")

        second = await store.letters(query, Page(2, first.next))
        third = await store.letters(query, Page(2, second.next))

        keys = [letter.key for slice_ in (first, second, third) for letter in slice_.items]
        assert keys == ["k0", "k1", "k2", "k3", "k4", "newer"]
        assert third.next is None

    async def test_pages_of_letters_neither_skip_nor_repeat(self, store):
        for number in range(5):
            await dead(store, f"k{number}")

        for size in (1, 2, 5):
            items = await pages(lambda page: store.letters(LetterQuery(workload=THINGS), page), size)
            assert [letter.key for letter in items] == [f"k{number}" for number in range(5)]

    async def test_a_list_has_what_its_letters_have(self, store):
        whole = await letter_of(store, await dead(store))

        (listed,) = (await store.letters(LetterQuery(), Page())).items

        assert asdict(listed) == {name: getattr(whole, name) for name in names_of(ListedLetter)}

    async def test_the_memory_for_a_list_of_letters_does_not_grow_with_their_bodies(self, store):
        for number in range(12):
            await dead(store, f"k{number}", body=MEGABYTE)
        await store.letters(LetterQuery(), Page(1))  # what is made once is not counted
        tracemalloc.start()
        try:
            found = await store.letters(LetterQuery(), Page(200))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert len(found.items) == 12
        assert most < 2 * len(MEGABYTE)


class ReadingRecords:
    @pytest.fixture
    async def box(self, store):
        things = {
            "c": {"colour": "red", "size": 3},
            "a": {"colour": "red", "size": 4},
            "b": {"colour": AWKWARD, "size": 3},
            AWKWARD: {"colour": "blue"},
        }
        await recorded(store)
        await settled(
            store, await claimed(store), completed(*(Upsert("box", key, each) for key, each in things.items()))
        )
        return store

    async def test_records_are_found_by_the_values_of_their_fields(self, box):
        async def listed(**where):
            slice_ = await box.find_records(RecordQuery(collection="box", where=where), Page(100))
            return [record["thingId"] for record in slice_.items]

        assert await listed() == sorted(["a", "b", "c", AWKWARD])
        assert await listed(colour="red") == ["a", "c"]
        assert await listed(colour="red", size=3) == ["c"]
        assert await listed(colour=AWKWARD) == ["b"]
        assert await listed(thingId=AWKWARD) == [AWKWARD]
        assert await listed(colour="yellow") == []

    async def test_pages_of_records_neither_skip_nor_repeat(self, box):
        for size in (1, 2, 4):
            items = await pages(lambda page: box.find_records(RecordQuery(collection="box"), page), size)
            assert [record["thingId"] for record in items] == sorted(["a", "b", "c", AWKWARD])

    async def test_a_record_that_was_never_written_is_not_there(self, box):
        assert await box.get("box", "never") is None
        assert await box.get("cellar", "a") is None

    async def test_names_that_nobody_declared_are_refused(self, box):
        with pytest.raises(InvalidQuery):
            await box.get("no_such_collection", "a")
        with pytest.raises(InvalidQuery):
            await box.find_records(RecordQuery(collection="no_such_collection"), Page())
        with pytest.raises(InvalidQuery):
            await box.find_records(RecordQuery(collection="box", where={"weight": 1}), Page())

    async def test_readers_and_writers_do_not_block_each_other(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(50)])

        async def write(number):
            effect = Upsert("box", "x", {"colour": "red", "size": number})
            await settled(store, await claimed(store, f"k{number}"), completed(effect))

        async def read():
            record = await elsewhere.get("box", "x")
            assert record is None or record["colour"] == "red"

        await asyncio.gather(*(write(n) for n in range(50)), *(read() for _ in range(50)))

        assert await elsewhere.counts(THINGS) == {"processed": 50}
