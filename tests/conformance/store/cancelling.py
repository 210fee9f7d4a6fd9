"""Cancelling: a job that its sender cancels ends without another attempt, unless it is in work (I10)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.contracts.ledger import Cancelled, Claimed, Interrupted, Lease, NotNow, Overdue, Status
from holdfast.contracts.transitions import CANCELLED, OVERDUE, Expire, Proceed, Release
from tests.conformance.vocabulary import (
    DAY,
    HOUR,
    OTHERS,
    THINGS,
    a_job,
    claimed,
    completed,
    dead_lettered,
    entry_of,
    recorded,
    retried,
    settled,
    try_claim,
)

ENDS, STOPS, TOO_LATE = Cancelled.ENDS, Cancelled.STOPS, Cancelled.TOO_LATE


def lease_of(claim) -> Lease:
    return Lease(claim.job_id, claim.fence)


class Cancelling:
    async def test_a_cancelled_job_is_overdue_at_once(self, harness, store):
        await store.record([a_job("new"), a_job("delayed", delay=HOUR), a_job("failed", ttl=DAY), a_job("other")])
        await settled(store, await claimed(store, "failed"), retried(HOUR))
        job_ids = ["id-new", "id-delayed", "id-failed"]

        assert await store.cancel(THINGS, job_ids) == [ENDS, ENDS, ENDS]

        elsewhere = await harness.store()
        assert sorted(await elsewhere.overdue(THINGS, 100)) == sorted(job_ids)
        answers = await try_claim(elsewhere, *job_ids)
        assert [(type(answer), answer.cancelled) for answer in answers] == [(Overdue, True)] * 3
        assert [answer.body for answer in answers] == [a_job(key).body for key in ("new", "delayed", "failed")]
        assert (await entry_of(store, "failed")).attempt_count == 1
        assert isinstance((await try_claim(store, "id-other"))[0], Claimed)

    async def test_a_cancelled_job_can_be_expired(self, store):
        await recorded(store)
        await store.cancel(THINGS, ["id-k"])
        (claim,) = await try_claim(store, "id-k")

        await settled(store, claim, Expire(DAY, note=CANCELLED))

        entry = await entry_of(store)
        assert (entry.status, entry.note, entry.attempts) == (Status.EXPIRED, CANCELLED, ())

    async def test_a_job_that_is_only_late_was_not_cancelled(self, harness, store):
        await recorded(store, ttl=harness.moment)
        await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k")

        assert (type(answer), answer.cancelled) == (Overdue, False)

    async def test_a_job_that_is_late_already_can_be_cancelled(self, harness, store):
        await recorded(store, ttl=harness.moment)
        await harness.pass_time(harness.moment)

        assert await store.cancel(THINGS, ["id-k"]) == [ENDS]
        assert (await try_claim(store, "id-k"))[0].cancelled

    async def test_a_job_can_be_cancelled_twice(self, harness, store):
        await recorded(store)

        assert await store.cancel(THINGS, ["id-k", "id-k"]) == [ENDS, ENDS]
        assert await (await harness.store()).cancel(THINGS, ["id-k"]) == [ENDS]
        assert (await try_claim(store, "id-k"))[0].cancelled

    async def test_a_job_in_work_is_not_cancelled(self, harness, store):
        await store.record([a_job("held"), a_job("lost")])
        held = await claimed(store, "held")
        await claimed(store, "lost", lease=harness.moment)
        await harness.pass_time(harness.moment)
        stands = await entry_of(store, "held")

        assert await store.cancel(THINGS, ["id-held", "id-lost"]) == [TOO_LATE, TOO_LATE]
        assert await store.asked_to_stop(THINGS, [lease_of(held)]) == []

        assert await entry_of(store, "held") == stands
        await settled(store, held, completed())
        assert (await entry_of(store, "held")).status is Status.PROCESSED
        assert isinstance((await try_claim(store, "id-lost"))[0], Claimed)

    @pytest.mark.parametrize(
        "end", [completed(), dead_lettered(), Expire(DAY)], ids=lambda transition: type(transition).__name__
    )
    async def test_a_settled_job_is_not_cancelled(self, store, end):
        await recorded(store)
        await settled(store, await claimed(store), end)
        stands = await entry_of(store)

        assert await store.cancel(THINGS, ["id-k"], running=True) == [TOO_LATE]
        assert await entry_of(store) == stands

    async def test_each_cancellation_is_answered_in_its_place(self, store):
        await store.record([a_job("a"), a_job("b"), a_job("c"), a_job("x", workload=OTHERS)])
        await claimed(store, "b")

        answers = await store.cancel(THINGS, ["id-c", "id-never", "id-b", "id-x", "id-a"])

        assert answers == [ENDS, TOO_LATE, TOO_LATE, TOO_LATE, ENDS]
        assert await store.cancel(THINGS, []) == []
        assert (await try_claim(store, "id-x", workload=OTHERS))[0].attempt == 1

    async def test_a_cancelled_job_stays_cancelled_until_it_is_settled(self, harness, store):
        await recorded(store)
        await store.cancel(THINGS, ["id-k"])
        (first,) = await try_claim(store, "id-k", lease=harness.moment)
        assert await store.cancel(THINGS, ["id-k"]) == [TOO_LATE]
        await harness.pass_time(harness.moment)
        (second,) = await try_claim(store, "id-k")
        assert (second.cancelled, second.fence > first.fence) == (True, True)
        await settled(store, second, Release())

        assert await store.cancel(THINGS, ["id-k"]) == [ENDS]
        assert (await try_claim(store, "id-k"))[0].cancelled

    @pytest.mark.parametrize("ttl", [None, HOUR], ids=["no ttl", "with a ttl"])
    async def test_a_replay_is_not_cancelled(self, harness, store, ttl):
        await recorded(store, ttl=ttl)
        await store.cancel(THINGS, ["id-k"])
        (claim,) = await try_claim(store, "id-k")
        await settled(store, claim, dead_lettered())
        letter = dead_lettered().letter_id
        await store.review([letter], actor="ana", reason="seen")
        await harness.pass_time(harness.moment)
        before = await store.now()

        await store.replay([(letter, None)], actor="ana", reason="wanted after all")

        entry = await entry_of(store)
        assert entry.deadline is None if ttl is None else entry.deadline >= before + ttl
        assert await store.overdue(THINGS, 100) == []
        assert (await claimed(store)).generation == 2

    async def test_a_replay_that_is_late_was_not_cancelled(self, harness, store):
        await recorded(store, ttl=harness.moment)
        await store.cancel(THINGS, ["id-k"])
        (claim,) = await try_claim(store, "id-k")
        letter = await dead_lettered_and_reviewed(store, claim)
        await store.replay([(letter, None)], actor="ana", reason="wanted after all")
        await harness.pass_time(harness.moment)

        (answer,) = await try_claim(store, "id-k")

        assert (type(answer), answer.cancelled) == (Overdue, False)

    async def test_a_job_is_either_cancelled_or_run(self, harness, store):
        elsewhere = await harness.store()
        await store.record([a_job(f"k{n}") for n in range(40)])
        for number in range(40):
            (gone,), (claim,) = await asyncio.gather(
                store.cancel(THINGS, [f"id-k{number}"]),
                try_claim(elsewhere, f"id-k{number}"),
            )

            assert isinstance(claim, Overdue if gone else Claimed)


class AskingToStop:
    async def test_a_job_in_work_is_asked_to_stop_and_its_lease_still_holds(self, harness, store):
        await store.record([a_job("asked"), a_job("other"), a_job("waits")])
        asked, other = await claimed(store, "asked"), await claimed(store, "other")
        leases = [lease_of(other), lease_of(asked)]
        assert await store.asked_to_stop(THINGS, leases) == []

        answers = await store.cancel(THINGS, ["id-waits", "id-asked", "id-never"], running=True)

        assert answers == [ENDS, STOPS, TOO_LATE]
        elsewhere = await harness.store()
        assert await elsewhere.asked_to_stop(THINGS, leases) == [lease_of(asked)]
        assert await elsewhere.asked_to_stop(THINGS, []) == []
        assert isinstance((await try_claim(elsewhere, "id-asked"))[0], NotNow)
        assert await elsewhere.renew(THINGS, leases, HOUR) == []
        assert await store.cancel(THINGS, ["id-asked"], running=True) == [STOPS]
        await settled(store, asked, Expire(DAY, note=CANCELLED))
        entry = await entry_of(store, "asked")
        assert (entry.status, entry.note, entry.attempt_count) == (Status.EXPIRED, CANCELLED, 1)
        assert await store.asked_to_stop(THINGS, leases) == []

    async def test_a_job_that_ends_before_it_stops_keeps_its_end(self, store):
        await recorded(store)
        claim = await claimed(store)
        await store.cancel(THINGS, ["id-k"], running=True)

        await settled(store, claim, completed())

        assert (await entry_of(store)).status is Status.PROCESSED

    @pytest.mark.parametrize("repeatable", [True, False])
    async def test_a_job_that_is_asked_to_stop_does_not_proceed(self, store, repeatable):
        await recorded(store)
        claim = await claimed(store)
        await store.cancel(THINGS, ["id-k"], running=True)

        answer = await settled(store, claim, Proceed(repeatable=repeatable))

        assert (answer.status, answer.note) == (Status.PROCESSING, OVERDUE)

    @pytest.mark.parametrize("end", [retried(), Release()], ids=["retry", "release"])
    async def test_a_job_that_is_asked_to_stop_is_not_run_again(self, store, end):
        await recorded(store)
        claim = await claimed(store)
        await store.cancel(THINGS, ["id-k"], running=True)
        await settled(store, claim, end)

        (answer,) = await try_claim(store, "id-k")

        assert (type(answer), answer.cancelled) == (Overdue, True)

    async def test_a_job_whose_worker_is_lost_after_that_is_not_run_again(self, harness, store):
        await recorded(store)
        lost = await claimed(store, lease=harness.moment)
        await harness.pass_time(harness.moment)
        assert await store.cancel(THINGS, ["id-k"], running=True) == [STOPS]

        (answer,) = await try_claim(store, "id-k")

        assert (type(answer), answer.cancelled) == (Overdue, True)
        assert await store.asked_to_stop(THINGS, [lease_of(lost)]) == []

    async def test_beyond_the_point_of_no_return_it_is_too_late(self, harness, store):
        await recorded(store)
        claim = await claimed(store, lease=harness.moment)
        await settled(store, claim, Proceed())

        assert await store.cancel(THINGS, ["id-k"], running=True) == [TOO_LATE]

        assert await store.asked_to_stop(THINGS, [lease_of(claim)]) == []
        await harness.pass_time(harness.moment)
        assert isinstance((await try_claim(store, "id-k"))[0], Interrupted)

    async def test_a_replay_of_a_job_that_was_asked_to_stop_runs(self, store):
        await recorded(store)
        claim = await claimed(store)
        await store.cancel(THINGS, ["id-k"], running=True)
        letter = await dead_lettered_and_reviewed(store, claim)

        await store.replay([(letter, None)], actor="ana", reason="wanted after all")

        again = await claimed(store)
        assert again.generation == 2
        assert await store.asked_to_stop(THINGS, [lease_of(again)]) == []


class TtlIncludesReplays:
    async def test_a_job_whose_ttl_includes_replays_keeps_its_deadline_when_it_is_replayed(self, harness, store):
        await recorded(store, ttl=HOUR, ttl_includes_replays=True)
        stood = (await entry_of(store)).deadline
        letter = await dead_lettered_and_reviewed(store)
        await harness.pass_time(harness.moment)

        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert (await entry_of(store)).deadline == stood
        assert (await claimed(store)).deadline == stood

    async def test_a_replay_of_a_job_whose_ttl_includes_replays_that_is_too_old_is_overdue(self, harness, store):
        await recorded(store, ttl=harness.moment, ttl_includes_replays=True)
        letter = await dead_lettered_and_reviewed(store)
        await harness.pass_time(harness.moment)

        assert await store.replay([(letter, None)], actor="ana", reason="mended") == [letter]

        (answer,) = await try_claim(store, "id-k")
        assert (type(answer), answer.cancelled, answer.generation) == (Overdue, False, 2)

    async def test_a_job_whose_ttl_includes_replays_that_was_cancelled_has_its_own_deadline_again_when_it_is_replayed(
        self, store
    ):
        await recorded(store, ttl=HOUR, ttl_includes_replays=True)
        stood = (await entry_of(store)).deadline
        await store.cancel(THINGS, ["id-k"])
        (claim,) = await try_claim(store, "id-k")
        letter = await dead_lettered_and_reviewed(store, claim)

        await store.replay([(letter, None)], actor="ana", reason="wanted after all")

        assert (await claimed(store)).deadline == stood

    async def test_a_job_without_a_ttl_has_no_deadline_even_if_its_ttl_includes_replays(self, store):
        await recorded(store, ttl_includes_replays=True)
        letter = await dead_lettered_and_reviewed(store)
        await store.replay([(letter, None)], actor="ana", reason="mended")

        assert (await entry_of(store)).deadline is None


async def dead_lettered_and_reviewed(store, claim=None):
    await settled(store, claim or await claimed(store), dead_lettered())
    assert await store.review([dead_lettered().letter_id], actor="ana", reason="seen") == [dead_lettered().letter_id]
    return dead_lettered().letter_id
