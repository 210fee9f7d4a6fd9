"""Progress of jobs in work, and which jobs have ended: what people and senders who wait are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.contracts.ledger import Lease
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import Expire, Release
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
    recorded,
    recorded_and_claimed,
    retried,
    settled,
)

HALF = {"done": 1, "total": 2, "note": AWKWARD}
WHOLE = {"done": 2, "total": 2, "note": None}


def lease_of(claim):
    return Lease(claim.job_id, claim.fence)


def without_time(progress):
    return {name: value for name, value in progress.items() if name != "at"}


class NotingProgress:
    async def test_a_job_shows_how_far_it_is(self, harness, store):
        first, second, _ = await recorded_and_claimed(store, "a", "b", "c")
        before = await store.now()

        await store.note_progress(THINGS, [(lease_of(first), HALF), (lease_of(second), WHOLE)])

        after = await store.now()
        shown = (await entry_of(store, "a")).progress
        assert without_time(shown) == HALF
        assert isoformat(before) <= shown["at"] <= isoformat(after)
        assert without_time((await entry_of(await harness.store(), "b")).progress) == WHOLE
        assert (await entry_of(store, "c")).progress is None

    async def test_nothing_else_of_the_entry_changes(self, harness, store):
        await recorded(store)
        claim = await claimed(store)
        before = await entry_of(store)
        await harness.pass_time(harness.moment)

        await store.note_progress(THINGS, [(lease_of(claim), HALF)])

        after = await entry_of(store)
        assert after.progress is not None
        assert replace(after, progress=None) == before

    async def test_the_last_report_counts(self, store):
        await recorded(store)
        lease = lease_of(await claimed(store))

        await store.note_progress(THINGS, [(lease, HALF), (lease, WHOLE)])
        assert without_time((await entry_of(store)).progress) == WHOLE
        await store.note_progress(THINGS, [(lease, HALF)])

        assert without_time((await entry_of(store)).progress) == HALF

    async def test_a_lease_that_was_lost_writes_nothing(self, harness, store):
        await recorded(store)
        lost = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)
        held = await claimed(store)

        await store.note_progress(THINGS, [(lease_of(lost), HALF)])
        assert (await entry_of(store)).progress is None
        await store.note_progress(OTHERS, [(lease_of(held), HALF)])
        await store.note_progress("no-such-workload", [(lease_of(held), HALF)])
        await store.note_progress(THINGS, [])
        assert (await entry_of(store)).progress is None
        await store.note_progress(THINGS, [(lease_of(lost), WHOLE), (lease_of(held), HALF)])

        assert without_time((await entry_of(store)).progress) == HALF

    @pytest.mark.parametrize("end", [completed(), retried(), Release(), dead_lettered(), Expire(DAY)])
    async def test_a_settled_job_keeps_its_last_progress(self, store, end):
        await recorded(store)
        claim = await claimed(store)
        await store.note_progress(THINGS, [(lease_of(claim), HALF)])
        await settled(store, claim, end)

        await store.note_progress(THINGS, [(lease_of(claim), WHOLE)])

        assert without_time((await entry_of(store)).progress) == HALF

    async def test_a_replay_begins_without_progress(self, store):
        await recorded(store)
        claim = await claimed(store)
        await store.note_progress(THINGS, [(lease_of(claim), HALF)])
        await settled(store, claim, dead_lettered())
        letter = dead_lettered().letter_id
        await store.review([letter], actor="ana", reason="seen")

        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert (await entry_of(store)).progress is None


class Ended:
    async def test_jobs_that_have_ended_are_named(self, store):
        keys = ["waits", "works", "failed", "processed", "expired", AWKWARD]
        await store.record([a_job(key) for key in keys])
        await dead(store, "dead")
        await claimed(store, "works")
        await settled(store, await claimed(store, "failed"), retried(HOUR))
        await settled(store, await claimed(store, "processed"), completed())
        await settled(store, await claimed(store, "expired"), Expire(DAY))
        await settled(store, await claimed(store, AWKWARD), completed())

        ended = await store.ended(THINGS, [AWKWARD, "never", *keys, "dead"])

        assert ended == [AWKWARD, "processed", "expired", AWKWARD, "dead"]
        assert await store.ended(THINGS, []) == []

    async def test_the_same_key_of_another_workload_is_another_job(self, store):
        await recorded(store)
        await settled(store, await claimed(store), completed())
        await recorded(store, workload=OTHERS)

        assert await store.ended(OTHERS, ["k"]) == []
        assert await store.ended("no-such-workload", ["k"]) == []
        assert await store.ended(THINGS, ["k", "K", "k\0"]) == ["k"]

    async def test_a_replayed_job_has_not_ended(self, store):
        letter = await dead_and_reviewed(store)
        assert await store.ended(THINGS, ["k"]) == ["k"]

        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert await store.ended(THINGS, ["k"]) == []

    async def test_many_keys_are_asked_for_at_once(self, store):
        await store.record([a_job(f"k{n}") for n in range(500)])
        await settled(store, await claimed(store, "k7"), completed())

        assert await store.ended(THINGS, [f"k{n}" for n in range(500)]) == ["k7"]
