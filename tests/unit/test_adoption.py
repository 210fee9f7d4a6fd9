"""Adoption: jobs that somebody put straight into the queue are recorded before their first claim."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from holdfast import Done, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import Status
from holdfast.contracts.queues import QueueJob
from tests.support.stage import LEASE, a_stage, lose_the_queue
from tests.support.waiting import eventually
from tests.support.workloads import BatchedParcels, Parcel, Parcels


@pytest.fixture
async def stage():
    async with a_stage() as made:
        yield made


def body(name="p", **changes):
    return Parcel(id=name, **changes).model_dump_json()


async def put(stage, *jobs, workers=1):
    """Put jobs into the queue as an external producer does, and let workers run until the queue is empty."""
    await stage.broker.publish("parcels-main", [QueueJob(job_id, data) for job_id, data in jobs])

    async def drained():
        depth = await stage.broker.depth("parcels-main")
        if (depth.ready, depth.active) != (0, 0):
            return False
        stage.clock.advance(LEASE)  # what was told to come later comes now
        return depth.delayed == 0

    async with AsyncExitStack() as running:
        for _ in range(workers):
            await running.enter_async_context(stage.working())
        await eventually(drained)


async def test_a_external_producers_job_is_recorded_and_worked(stage):
    await put(stage, ("node-job-1", body(place="home", attempt=4)))

    entry = await stage.entry("p")
    assert (entry.status, entry.job_id, entry.attempt_count) == (Status.PROCESSED, "node-job-1", 1)
    assert entry.labels == {"place": "home", "traceId": "trace-p"}
    assert [job.data.attempt for job in stage.workload.handled] == [1]
    assert (await stage.store.get("parcel_places", "p"))["place"] == "home"


async def test_an_id_that_the_queue_counted_up_names_no_job(stage):
    await put(stage, ("1", body("first")))
    await lose_the_queue(stage.database)

    await put(stage, ("1", body("second")))

    assert [(await stage.entry(name)).job_id for name in ("first", "second")] == ["parcel.first", "parcel.second"]
    assert [job.data.id for job in stage.workload.handled] == ["first", "second"]


@pytest.mark.parametrize("data", ["not json", "{}", '{"id": 7}', "", '{"id": ""}' * 2])
async def test_a_job_that_breaks_the_contract_becomes_a_dead_letter(stage, data):
    await put(stage, ("node-job-1", data))

    (letter,) = await stage.letters()
    assert (letter.reason_code, letter.body, letter.attempt_count) == ("VALIDATION_FAILED", data, 1)
    assert stage.workload.handled == []
    assert await stage.store.counts("parcels") == {"dead_lettered": 1}


async def test_a_job_that_no_store_can_hold_becomes_a_dead_letter_that_shows_its_beginning(stage):
    data = body(place="x" * 5_000_000)

    await put(stage, ("node-job-1", data), ("node-job-2", body("q")))

    (letter,) = await stage.letters()
    assert letter.reason_code == "VALIDATION_FAILED"
    assert letter.body.startswith(data[:60_000])
    assert letter.body.endswith(f"[... {len(data)} characters]")
    assert (await stage.entry("q")).status is Status.PROCESSED


async def test_an_identity_that_cannot_be_used_becomes_a_dead_letter(stage):
    await put(stage, ("node-job-1", body("x" * 500)))

    (letter,) = await stage.letters()
    assert letter.reason_code == "VALIDATION_FAILED"


async def test_a_workload_that_cannot_name_the_job_makes_it_a_dead_letter():
    class Fussy(Parcels):
        def key(self, data):
            message = "no name"
            raise LookupError(message)

    async with a_stage(Fussy()) as stage:
        await put(stage, ("node-job-1", body()))

        (letter,) = await stage.letters()
        assert letter.reason_code == "VALIDATION_FAILED"


async def test_the_same_rubbish_twice_is_one_dead_letter(stage):
    await put(stage, ("node-job-1", "rubbish"))
    await put(stage, ("node-job-2", "rubbish"))

    assert len(await stage.letters()) == 1


async def test_a_job_that_is_known_already_is_not_done_twice(stage):
    await stage.accept("p")

    await put(stage, ("node-job-1", body()), ("node-job-2", body()))

    assert len(stage.workload.handled) == 1
    assert await stage.store.counts("parcels") == {"processed": 1}


async def test_a_job_that_conflicts_with_what_stands_becomes_a_dead_letter(stage):
    await stage.accept("p", place="home")

    await put(stage, ("node-job-1", body(place="work")))

    assert (await stage.store.get("parcel_places", "p"))["place"] == "home"
    (letter,) = await stage.letters()
    assert letter.reason_code == "IDEMPOTENCY_CONFLICT"
    assert Parcel.model_validate_json(letter.body).place == "work"
    assert await stage.status("p") is Status.PROCESSED


async def test_a_job_under_the_id_of_another_does_the_others_work(stage):
    """The ledger is the truth: an id that it knows means the job that it holds, whatever the queue's copy says."""
    await stage.accept("p", place="home")
    await lose_the_queue(stage.database)

    await put(stage, ("parcel.p", body(place="work")))

    assert (await stage.store.get("parcel_places", "p"))["place"] == "home"
    assert await stage.letters() == []


async def test_a_bad_job_of_an_external_producer_harms_no_other_job_of_its_batch(stage):
    await stage.accept("known", place="home")
    await put(
        stage,
        ("1", body("a")),
        ("2", "rubbish"),
        ("x-3", body("known", place="work")),
        ("x-4", body("b")),
        ("5", body("b")),
    )

    assert sorted(job.data.id for job in stage.workload.handled) == ["a", "b", "known"]
    assert sorted(letter.reason_code for letter in await stage.letters()) == [
        "IDEMPOTENCY_CONFLICT",
        "VALIDATION_FAILED",
    ]


async def test_a_batch_keeps_the_order_of_the_queue_whoever_put_the_jobs_there():
    """Of two reports on one place, the newer came first: the older one is late, also when only the newer is adopted."""

    async def report(jobs):
        return [
            Done(
                [Upsert("parcel_places", "shared", {"seenAt": job.data.seen_at}, only_if_newer="seenAt")],
                result={"seenAt": job.data.seen_at},
            )
            for job in jobs
        ]

    async with a_stage(BatchedParcels(report)) as stage:
        await stage.broker.publish("parcels-main", [QueueJob("node-job-1", body("adopted", seen_at=2))])
        await stage.accept("recorded", seen_at=1)

        async with stage.working():
            late = await stage.until("recorded", Status.PROCESSED)

        assert stage.workload.batches == [["adopted", "recorded"]]
        assert (late.note, late.result) == ("ignored_stale", {"note": "ignored_stale", "seenAt": 1})
        assert (await stage.entry("adopted")).note is None
        assert (await stage.store.get("parcel_places", "shared"))["seenAt"] == 2


async def test_two_workers_that_adopt_the_same_job_do_it_once(stage):
    await put(stage, *((f"x-{n}", body()) for n in range(10)), workers=2)

    assert len(stage.workload.handled) == 1
    assert await stage.store.counts("parcels") == {"processed": 1}


async def test_a_job_that_no_store_can_keep_is_refused_and_holds_up_no_neighbour(stage):
    """Tried together, then alone: it is one of them that cannot be kept."""
    refused = EffectRefused("parcel.bad", "too large a number")
    stage.store.fail("record", refused, times=2)

    await put(stage, ("bad", body("bad")), ("good", body("good")))

    assert (await stage.entry("good")).status is Status.PROCESSED
    (letter,) = await stage.letters()
    assert (letter.reason_code, letter.reason_message) == (
        "VALIDATION_FAILED",
        "The job holds something that cannot be stored.",
    )
    assert letter.body == body("bad")
