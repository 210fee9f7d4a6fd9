"""Maintenance: what makes good for crashes, lost queues and lost workers (I1, I8, I10)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Reject, Retry, Upsert
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Status
from holdfast.engine.maintenance import Maintenance, MaintenanceReport
from holdfast.telemetry import events
from tests.support.gateway import GRACE, LEASE, assembled, lose_the_queue
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, Parcel, Parcels, deliver

NOTHING = MaintenanceReport()


@pytest.fixture
async def gateway():
    async with assembled() as made:
        await made.maintenance.round()
        yield made


async def ids_in(gateway, queue):
    return sorted(job_id for job_id, _ in await gateway.queued(queue))


async def test_a_healthy_system_needs_nothing(gateway):
    await gateway.accept("p")

    assert await gateway.maintenance.round() == NOTHING
    assert not NOTHING.anything


# --- the queue lost something -----------------------------------------------------------------------------------


async def test_a_job_that_never_reached_the_queue_is_published_after_the_grace(gateway):
    gateway.broker.fail("publish", BrokerUnavailable())
    await gateway.intake.accept(gateway.workload, Parcel(id="p"), priority=3)
    assert (await gateway.maintenance.round()).republished == 0

    gateway.clock.advance(GRACE)

    assert (await gateway.maintenance.round()).republished == 1
    assert await gateway.queued("parcels-main") == [("parcel.p", (await gateway.entry("p")).body)]
    assert (await gateway.maintenance.round()).republished == 0


async def test_a_job_that_the_queue_still_has_is_not_doubled(gateway):
    await gateway.accept("p")
    gateway.clock.advance(GRACE)

    await gateway.maintenance.round()

    assert len(await gateway.queued("parcels-main")) == 1


async def test_a_republished_job_says_which_attempt_comes_next():
    async with assembled(Parcels(lambda job: Retry("BUSY"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
        await lose_the_queue(gateway.database)
        gateway.clock.advance(RETRY_AFTER + GRACE)

        await gateway.maintenance.round()

        ((_, data),) = await gateway.queued("parcels-main")
        assert Parcel.model_validate_json(data).attempt == 2


async def test_many_lost_jobs_are_all_published(gateway):
    await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(1100)))
    await lose_the_queue(gateway.database)
    gateway.clock.advance(GRACE)

    report = await gateway.maintenance.round()

    assert report.republished == 1100
    assert (await gateway.broker.depth("parcels-main")).ready == 1100


async def test_what_the_queue_still_has_is_not_published_again(gateway):
    await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(30)))
    await gateway.broker.remove("parcels-main", ["parcel.p7"])
    gateway.clock.advance(GRACE)

    assert (await gateway.maintenance.round()).republished == 1
    assert (await gateway.broker.depth("parcels-main")).ready == 30


async def test_a_long_line_is_looked_at_a_few_jobs_at_a_time(gateway):
    await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(1200)))
    await gateway.broker.remove("parcels-main", [f"parcel.p{n}" for n in range(1200) if n % 12 == 0])
    gateway.clock.advance(GRACE)

    found = [(await gateway.maintenance.round()).republished for _ in range(7)]

    assert (max(found), sum(found)) == (17, 100)
    assert (await gateway.broker.depth("parcels-main")).ready == 1200


async def test_a_queue_that_lost_everything_is_rebuilt_at_once(gateway, seen):
    await gateway.accept("waits")
    await gateway.intake.accept(gateway.workload, Parcel(id="later"), delay=timedelta(hours=1))
    await gateway.maintenance.round()

    await lose_the_queue(gateway.database)
    report = await gateway.maintenance.round()

    assert report.republished == 2
    assert [event for event, _ in seen].count(events.QUEUE_LOST) == 1
    depth = await gateway.broker.depth("parcels-main")
    assert (depth.ready, depth.delayed) == (1, 1)
    assert await gateway.maintenance.round() == NOTHING


async def test_the_dead_letter_queue_is_rebuilt_too():
    async with assembled(Parcels(lambda job: Reject("GONE"))) as gateway:
        await gateway.maintenance.round()
        await gateway.accept("pending")
        await gateway.accept("reviewed")
        async with gateway.working():
            await gateway.until("pending", Status.DEAD_LETTERED)
            await gateway.until("reviewed", Status.DEAD_LETTERED)
        pending, reviewed = [(await gateway.letters(key=f"parcel:{name}"))[0].id for name in ("pending", "reviewed")]
        await gateway.review.review(reviewed, actor="ana", reason="seen")

        await lose_the_queue(gateway.database)
        report = await gateway.maintenance.round()

        assert report.letters_published == 1
        assert await ids_in(gateway, "parcels-dead") == [pending]


async def test_a_letter_that_was_never_published_is_published_once():
    async with assembled(Parcels(lambda job: Reject("GONE"))) as gateway:
        await gateway.accept("p")
        gateway.broker.break_down(BrokerUnavailable(), "publish")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
        gateway.broker.repair()
        assert await gateway.queued("parcels-dead") == []

        reports = [await gateway.maintenance.round() for _ in range(2)]

        assert [report.letters_published for report in reports] == [1, 0]
        assert len(await gateway.queued("parcels-dead")) == 1


async def test_a_crash_between_publishing_and_marking_doubles_nothing():
    async with assembled(Parcels(lambda job: Reject("GONE"))) as gateway:
        await gateway.accept("p")
        gateway.store.fail("mark_published", StoreUnavailable())
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: gateway.store.calls["mark_published"])

        assert (await gateway.maintenance.round()).letters_published == 1
        assert len(await gateway.queued("parcels-dead")) == 1


async def test_a_letter_that_was_dealt_with_while_the_queue_was_away_is_cancelled():
    async with assembled(Parcels(lambda job: Reject("GONE"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.DEAD_LETTERED)
        (letter,) = await gateway.letters()
        await gateway.review.review(letter.id, actor="ana", reason="seen")
        gateway.broker.fail("remove", BrokerUnavailable())
        await gateway.review.close(letter.id, actor="ana", reason="done")

        reports = [await gateway.maintenance.round() for _ in range(2)]

        assert [report.letters_unpublished for report in reports] == [1, 0]
        assert await gateway.queued("parcels-dead") == []


# --- a worker vanished ------------------------------------------------------------------------------------------


async def test_the_jobs_of_a_vanished_worker_are_delivered_again(gateway):
    await gateway.accept("p")
    await gateway.broker.take("parcels-main", 1, wait=timedelta(0), lease=LEASE)
    await gateway.store.claim("parcels", ["parcel.p"], worker="gone", lease=LEASE, max_attempts=3)
    assert (await gateway.maintenance.round()).recovered == 0

    gateway.clock.advance(LEASE)
    report = await gateway.maintenance.round()

    assert report.recovered == 1
    async with gateway.working():
        entry = await gateway.until("p", Status.PROCESSED)
    assert [attempt.worker for attempt in entry.attempts] == ["gone", "worker-1"]


async def test_a_vanished_worker_and_a_lost_queue_together_lose_nothing(gateway):
    await gateway.accept("p")
    await gateway.broker.take("parcels-main", 1, wait=timedelta(0), lease=LEASE)
    await gateway.store.claim("parcels", ["parcel.p"], worker="gone", lease=LEASE, max_attempts=3)
    await lose_the_queue(gateway.database)
    gateway.clock.advance(LEASE)

    assert (await gateway.maintenance.round()).republished == 1

    async with gateway.working():
        await gateway.until("p", Status.PROCESSED)


# --- deadlines --------------------------------------------------------------------------------------------------


@pytest.fixture
async def with_ttl():
    workload = Parcels()
    workload.ttl = timedelta(seconds=60)
    async with assembled(workload) as made:
        yield made


async def test_a_job_expires_without_any_worker(with_ttl):
    await with_ttl.accept("p")
    await with_ttl.accept("q")
    with_ttl.clock.advance(timedelta(seconds=59))
    assert (await with_ttl.maintenance.round()).expired == 0

    with_ttl.clock.advance(timedelta(seconds=1))
    report = await with_ttl.maintenance.round()

    assert report.expired == 2
    entry = await with_ttl.entry("p")
    assert (entry.status, entry.attempts) == (Status.EXPIRED, ())
    assert (await with_ttl.store.get("parcel_places", "p"))["place"] == "lost"
    assert await with_ttl.queued("parcels-main") == []


async def test_a_job_expires_while_the_queue_is_away(with_ttl):
    await with_ttl.accept("p")
    with_ttl.clock.advance(timedelta(seconds=60))
    with_ttl.broker.break_down(BrokerUnavailable(), "epoch", "recover", "depth", "publish", "remove")

    with pytest.raises(BrokerUnavailable):
        await with_ttl.maintenance.round()

    assert await with_ttl.status("p") is Status.EXPIRED


async def test_a_job_that_waits_for_its_retry_expires_in_time(with_ttl):
    with_ttl.workload.script = lambda job: Retry("BUSY", after=timedelta(hours=1))
    await with_ttl.accept("p")
    async with with_ttl.working():
        await with_ttl.until("p", Status.FAILED)
    with_ttl.clock.advance(timedelta(seconds=60))

    assert (await with_ttl.maintenance.round()).expired == 1
    assert len((await with_ttl.entry("p")).attempts) == 1


async def test_a_job_in_work_is_left_to_its_worker(with_ttl):
    await with_ttl.accept("p")
    await with_ttl.store.claim("parcels", ["parcel.p"], worker="w", lease=timedelta(hours=1), max_attempts=3)
    with_ttl.clock.advance(timedelta(seconds=60))

    assert (await with_ttl.maintenance.round()).expired == 0
    assert await with_ttl.status("p") is Status.PROCESSING


async def test_an_entry_that_was_replayed_in_the_meantime_is_left_as_it_was(with_ttl):
    await with_ttl.accept("p")
    with_ttl.clock.advance(timedelta(seconds=59))
    listed = asyncio.Event()

    class Hasty:
        """Says that a job is overdue a moment too early, as a sweep does that a replay overtakes."""

        def __getattr__(self, name):
            return getattr(with_ttl.store, name)

        async def overdue(self, workload, limit):
            listed.set()
            return ["parcel.p"]

    report = await Maintenance(Hasty(), with_ttl.broker, [with_ttl.workload], with_ttl.ambient).round()

    assert listed.is_set()
    assert report.expired == 0
    entry = await with_ttl.entry("p")
    assert (entry.status, entry.attempts) == (Status.RECEIVED, ())


async def test_effects_that_cannot_be_applied_keep_no_job_alive(with_ttl):
    def careless(data):
        place = "no_such_collection" if data.id == "p" else "parcel_places"
        return [Upsert(place, data.id, {"place": "lost"})]

    with_ttl.workload.expired = careless
    await with_ttl.accept("p")
    await with_ttl.accept("q")
    with_ttl.clock.advance(timedelta(seconds=60))

    assert (await with_ttl.maintenance.round()).expired == 2
    assert await with_ttl.store.get("parcel_places", "q") is not None


# --- the end of retention ---------------------------------------------------------------------------------------


async def test_what_has_outlived_its_retention_is_forgotten():
    workload = Parcels(lambda job: Reject("GONE") if job.data.id == "dead" else deliver(job))
    workload.retention, workload.letter_retention = timedelta(days=30), timedelta(days=90)
    async with assembled(workload) as gateway:
        await gateway.accept("done")
        await gateway.accept("dead")
        async with gateway.working():
            await gateway.until("done", Status.PROCESSED)
            await gateway.until("dead", Status.DEAD_LETTERED)
        gateway.clock.advance(timedelta(days=30))
        assert (await gateway.maintenance.round()).pruned == 1
        assert await gateway.store.counts("parcels") == {"dead_lettered": 1}

        gateway.clock.advance(timedelta(days=60))

        assert (await gateway.maintenance.round()).pruned == 2
        assert await gateway.letters() == []
        assert await gateway.queued("parcels-dead") == []


async def test_pruning_has_a_rhythm_of_its_own(gateway):
    before = gateway.store.calls["prune"]
    for _ in range(5):
        await gateway.maintenance.round()
        gateway.clock.advance(timedelta(seconds=20))

    assert gateway.store.calls["prune"] - before == 1


# --- going on ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreUnavailable(), BrokerUnavailable(), RuntimeError("a bug")])
async def test_maintenance_goes_on_whatever_happens(gateway, error):
    maintenance = Maintenance(
        gateway.store, gateway.broker, [gateway.workload], gateway.ambient, interval=timedelta(milliseconds=1)
    )
    gateway.store.fail("detect_queue_reset", error, times=3)
    stop = asyncio.Event()
    running = asyncio.create_task(maintenance.run(stop))

    await eventually(lambda: gateway.store.calls["due"] > 5)

    stop.set()
    await running


async def test_two_maintenances_do_the_work_once(gateway):
    other = Maintenance(gateway.store, gateway.broker, [gateway.workload], gateway.ambient)
    await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(20)))
    await lose_the_queue(gateway.database)
    gateway.clock.advance(GRACE)

    reports = await asyncio.gather(gateway.maintenance.round(), other.round())

    assert sum(report.republished for report in reports) == 20
