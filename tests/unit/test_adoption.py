"""Adoption: jobs that somebody put straight into the queue are recorded before their first claim."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from holdfast import Done, Upsert
from holdfast.contracts.errors import EffectRefused
from holdfast.contracts.ledger import Status
from holdfast.contracts.queues import QueueJob
from tests.support.gateway import LEASE, assembled, lose_the_queue
from tests.support.waiting import eventually
from tests.support.workloads import BatchedParcels, Parcel, Parcels


@pytest.fixture
async def gateway():
    async with assembled() as made:
        yield made


def body(name="p", **changes):
    return Parcel(id=name, **changes).model_dump_json()


async def put(gateway, *jobs, workers=1):
    """Put jobs into the queue as an external producer does, and let workers run until the queue is empty."""
    await gateway.broker.publish("parcels-main", [QueueJob(job_id, data) for job_id, data in jobs])

    async def drained():
        depth = await gateway.broker.depth("parcels-main")
        if (depth.ready, depth.active) != (0, 0):
            return False
        gateway.clock.advance(LEASE)  # what was told to come later comes now
        return depth.delayed == 0

    async with AsyncExitStack() as running:
        for _ in range(workers):
            await running.enter_async_context(gateway.working())
        await eventually(drained)


async def test_a_external_producers_job_is_recorded_and_worked(gateway):
    await put(gateway, ("node-job-1", body(place="home", attempt=4)))

    entry = await gateway.entry("p")
    assert (entry.status, entry.job_id, entry.attempt_count) == (Status.PROCESSED, "node-job-1", 1)
    assert entry.labels == {"place": "home", "traceId": "trace-p"}
    assert [job.data.attempt for job in gateway.workload.handled] == [1]
    assert (await gateway.store.get("parcel_places", "p"))["place"] == "home"


async def test_an_id_that_the_queue_counted_up_names_no_job(gateway):
    await put(gateway, ("1", body("first")))
    await lose_the_queue(gateway.database)

    await put(gateway, ("1", body("second")))

    assert [(await gateway.entry(name)).job_id for name in ("first", "second")] == ["parcel.first", "parcel.second"]
    assert [job.data.id for job in gateway.workload.handled] == ["first", "second"]


@pytest.mark.parametrize("data", ["not json", "{}", '{"id": 7}', "", '{"id": ""}' * 2])
async def test_a_job_that_breaks_the_contract_becomes_a_dead_letter(gateway, data):
    await put(gateway, ("node-job-1", data))

    (letter,) = await gateway.letters()
    assert (letter.reason_code, letter.body, letter.attempt_count) == ("VALIDATION_FAILED", data, 1)
    assert gateway.workload.handled == []
    assert await gateway.store.counts("parcels") == {"dead_lettered": 1}


async def test_a_job_that_no_store_can_hold_becomes_a_dead_letter_that_shows_its_beginning(gateway):
    data = body(place="x" * 5_000_000)

    await put(gateway, ("node-job-1", data), ("node-job-2", body("q")))

    (letter,) = await gateway.letters()
    assert letter.reason_code == "VALIDATION_FAILED"
    assert letter.body.startswith(data[:60_000])
    assert letter.body.endswith(f"[... {len(data)} characters]")
    assert (await gateway.entry("q")).status is Status.PROCESSED


async def test_an_identity_that_cannot_be_used_becomes_a_dead_letter(gateway):
    await put(gateway, ("node-job-1", body("x" * 500)))

    (letter,) = await gateway.letters()
    assert letter.reason_code == "VALIDATION_FAILED"


async def test_a_workload_that_cannot_name_the_job_makes_it_a_dead_letter():
    class Fussy(Parcels):
        def key(self, data):
            message = "no name"
            raise LookupError(message)

    async with assembled(Fussy()) as gateway:
        await put(gateway, ("node-job-1", body()))

        (letter,) = await gateway.letters()
        assert letter.reason_code == "VALIDATION_FAILED"


async def test_the_same_rubbish_twice_is_one_dead_letter(gateway):
    await put(gateway, ("node-job-1", "rubbish"))
    await put(gateway, ("node-job-2", "rubbish"))

    assert len(await gateway.letters()) == 1


async def test_a_job_that_is_known_already_is_not_done_twice(gateway):
    await gateway.accept("p")

    await put(gateway, ("node-job-1", body()), ("node-job-2", body()))

    assert len(gateway.workload.handled) == 1
    assert await gateway.store.counts("parcels") == {"processed": 1}


async def test_a_job_that_conflicts_with_what_stands_becomes_a_dead_letter(gateway):
    await gateway.accept("p", place="home")

    await put(gateway, ("node-job-1", body(place="work")))

    assert (await gateway.store.get("parcel_places", "p"))["place"] == "home"
    (letter,) = await gateway.letters()
    assert letter.reason_code == "IDEMPOTENCY_CONFLICT"
    assert Parcel.model_validate_json(letter.body).place == "work"
    assert await gateway.status("p") is Status.PROCESSED


async def test_a_job_under_the_id_of_another_does_the_others_work(gateway):
    """The ledger is the truth: an id that it knows means the job that it holds, whatever the queue's copy says."""
    await gateway.accept("p", place="home")
    await lose_the_queue(gateway.database)

    await put(gateway, ("parcel.p", body(place="work")))

    assert (await gateway.store.get("parcel_places", "p"))["place"] == "home"
    assert await gateway.letters() == []


async def test_a_bad_job_of_an_external_producer_harms_no_other_job_of_its_batch(gateway):
    await gateway.accept("known", place="home")
    await put(
        gateway,
        ("1", body("a")),
        ("2", "rubbish"),
        ("x-3", body("known", place="work")),
        ("x-4", body("b")),
        ("5", body("b")),
    )

    assert sorted(job.data.id for job in gateway.workload.handled) == ["a", "b", "known"]
    assert sorted(letter.reason_code for letter in await gateway.letters()) == [
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

    async with assembled(BatchedParcels(report)) as gateway:
        await gateway.broker.publish("parcels-main", [QueueJob("node-job-1", body("adopted", seen_at=2))])
        await gateway.accept("recorded", seen_at=1)

        async with gateway.working():
            late = await gateway.until("recorded", Status.PROCESSED)

        assert gateway.workload.batches == [["adopted", "recorded"]]
        assert (late.note, late.result) == ("ignored_stale", {"note": "ignored_stale", "seenAt": 1})
        assert (await gateway.entry("adopted")).note is None
        assert (await gateway.store.get("parcel_places", "shared"))["seenAt"] == 2


async def test_two_workers_that_adopt_the_same_job_do_it_once(gateway):
    await put(gateway, *((f"x-{n}", body()) for n in range(10)), workers=2)

    assert len(gateway.workload.handled) == 1
    assert await gateway.store.counts("parcels") == {"processed": 1}


async def test_a_job_that_no_store_can_keep_is_refused_and_holds_up_no_neighbour(gateway):
    """Tried together, then alone: it is one of them that cannot be kept."""
    refused = EffectRefused("parcel.bad", "too large a number")
    gateway.store.fail("record", refused, times=2)

    await put(gateway, ("bad", body("bad")), ("good", body("good")))

    assert (await gateway.entry("good")).status is Status.PROCESSED
    (letter,) = await gateway.letters()
    assert (letter.reason_code, letter.reason_message) == (
        "VALIDATION_FAILED",
        "The job holds something that cannot be stored.",
    )
    assert letter.body == body("bad")
