"""Checkpoints: committed in order while the reading goes on, and found again without a gap."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import LeaseLost
from holdfast.features.documents.records import UNITS, unit_id, work_id
from holdfast.features.documents.units import Checkpoints, units_of

KEEP = timedelta(days=30)


class Store:
    """Commits when it may, and remembers what each commit wrote."""

    def __init__(self) -> None:
        self.commits: list[list[Upsert]] = []
        self.open = asyncio.Event()
        self.under_way = 0
        self.error: Exception | None = None

    async def commit(self, effects) -> None:
        self.under_way += 1
        assert self.under_way == 1, "two commits at a time"
        try:
            await self.open.wait()
            if self.error is not None:
                raise self.error
            self.commits.append(list(effects))
        finally:
            self.under_way -= 1

    @property
    def written(self) -> list[list[int]]:
        """The units of each commit."""
        return [[each.set["result"] for each in commit if each.collection == UNITS] for commit in self.commits]


@pytest.fixture
def store():
    return Store()


def checkpoints(store) -> Checkpoints:
    return Checkpoints("w", store.commit, lambda done: Upsert("jobs", "j", {"done": done}), keep=KEEP)


async def test_units_that_come_during_a_commit_share_the_next_with_how_far_it_is(store):
    made = checkpoints(store)
    await made.add(3, "a", 1)
    await asyncio.sleep(0)  # the first commit is under way
    for index, result in enumerate("bcd", start=4):
        await made.add(index, result, 1)
    store.open.set()
    await made.flush()

    assert store.written == [["a"], ["b", "c", "d"]]
    assert [commit[-1] for commit in store.commits] == [
        Upsert("jobs", "j", {"done": 4}),
        Upsert("jobs", "j", {"done": 7}),
    ]
    first = store.commits[0][0]
    assert (first.collection, first.key) == (UNITS, unit_id("w", 3))
    left = datetime.fromisoformat(first.set["expires_at"]) - datetime.now(UTC)
    assert KEEP - timedelta(minutes=1) < left <= KEEP


async def test_no_commit_grows_without_bounds(store):
    made = checkpoints(store)
    for index in range(450):
        await made.add(index, index, 1)
    store.open.set()
    await made.flush()
    assert [len(each) for each in store.written] == [200, 200, 50]
    assert [result for each in store.written for result in each] == list(range(450))


async def test_the_reading_waits_when_many_bytes_wait_for_a_commit(store):
    made = checkpoints(store)
    await made.add(0, "a", 1)
    await asyncio.sleep(0)  # the first commit is under way
    await made.add(1, "b", 3_000_000)
    adding = asyncio.ensure_future(made.add(2, "c", 3_000_000))
    await asyncio.wait([adding], timeout=0.05)
    assert not adding.done()
    store.open.set()
    await adding
    await made.flush()
    assert store.written == [["a"], ["b"], ["c"]]


async def test_units_that_come_after_a_commit_start_another(store):
    made = checkpoints(store)
    store.open.set()
    for index in range(3):
        await made.add(index, index, 1)
        await made.flush()
    assert store.written == [[0], [1], [2]]


async def test_a_lost_lease_is_told_to_whoever_reads_on_or_waits(store):
    store.error = LeaseLost()
    store.open.set()
    made = checkpoints(store)
    await made.add(0, "a", 1)
    with pytest.raises(LeaseLost):
        await made.flush()
    with pytest.raises(LeaseLost):
        await made.add(1, "b", 1)
    await made.give_up()
    assert store.commits == []


async def test_giving_up_leaves_nothing_under_way(store):
    made = checkpoints(store)
    await made.give_up()  # nothing was
    await made.add(0, "a", 1)
    await asyncio.sleep(0)
    assert store.under_way == 1
    await made.give_up()
    assert store.under_way == 0
    store.open.set()
    await asyncio.sleep(0)
    assert store.commits == []


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
async def test_units_are_found_from_the_first_on_up_to_a_gap(count):
    class Context:
        async def get(self, collection, key):
            assert collection == UNITS
            index = int(key.removeprefix("w:"))
            # Beyond the gap there are more, which are of no use.
            return None if index == count else {"result": {"index": index}}

    assert [unit async for unit in units_of(Context(), "w")] == [{"index": index} for index in range(count)]


def test_a_work_is_named_by_its_content_and_by_how_it_is_read():
    ways = [("a",), ("b",), ("a", "en"), ("a", None), ("a", 60.0), ("a", "en", None), ("a", None, "en"), ("a,en",)]
    assert len({work_id(*way) for way in ways}) == len(ways)
    assert work_id("a", "en", 60.0) == work_id("a", "en", 60.0)
    assert unit_id("w", 7) < unit_id("w", 10) < unit_id("w", 100_000)
