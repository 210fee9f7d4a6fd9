"""Intake: accepted means recorded, whatever the queue says, and requests share commits (I1, I2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.errors import BrokerUnavailable, IntakeSaturated, StoreUnavailable
from holdfast.contracts.ledger import RecordedAs, Status
from holdfast.engine.intake import Intake
from tests.support.gateway import GRACE, assembled
from tests.support.waiting import eventually
from tests.support.workloads import Parcel, Parcels

NEW, DUPLICATE, CONFLICT = RecordedAs.NEW, RecordedAs.DUPLICATE, RecordedAs.CONFLICT


@pytest.fixture
async def gateway():
    async with assembled() as made:
        yield made


class Gate:
    """Holds calls back until it is opened, and tells when one waits."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.open = asyncio.Event()
        self.sizes: list[int] = []

    async def __call__(self, entries):
        self.sizes.append(len(entries))
        self.waiting.set()
        await self.open.wait()


# --- one job --------------------------------------------------------------------------------------------------


async def test_an_accepted_job_is_recorded_and_queued(gateway):
    receipt = await gateway.accept("p", place="home")

    assert (receipt.recorded_as, receipt.key, receipt.job_id, receipt.queued) == (NEW, "parcel:p", "parcel.p", True)
    assert receipt.labels == {"place": "home", "traceId": "trace-p"}
    entry = await gateway.entry("p")
    assert (entry.status, entry.body) == (Status.RECEIVED, Parcel(id="p", place="home").model_dump_json())
    assert receipt.received_at == entry.first_seen_at
    assert await gateway.queued("parcels-main") == [("parcel.p", entry.body)]


async def test_priority_and_delay_reach_ledger_and_queue(gateway):
    await gateway.intake.accept(gateway.workload, Parcel(id="low"), priority=5)
    await gateway.intake.accept(gateway.workload, Parcel(id="later"), delay=timedelta(seconds=60))
    await gateway.intake.accept(gateway.workload, Parcel(id="top"))

    assert [job_id for job_id, _ in await gateway.queued("parcels-main")] == ["parcel.top", "parcel.low"]
    assert (await gateway.entry("low")).priority == 5
    assert (await gateway.entry("later")).not_before == gateway.clock.now() + timedelta(seconds=60)
    gateway.clock.advance(timedelta(seconds=60))
    assert [job_id for job_id, _ in await gateway.queued("parcels-main")] == ["parcel.later"]


async def test_a_duplicate_gets_the_first_receipt(gateway):
    first = await gateway.accept("p", place="home")
    gateway.clock.advance(timedelta(seconds=9))

    second = await gateway.accept("p", place="home", attempt=4)

    assert (second.recorded_as, second.received_at, second.job_id) == (DUPLICATE, first.received_at, first.job_id)
    assert len(await gateway.queued("parcels-main")) == 1


async def test_other_content_under_the_same_key_is_a_conflict(gateway):
    await gateway.accept("p", place="home")

    assert (await gateway.accept("p", place="work")).recorded_as is CONFLICT
    assert '"home"' in (await gateway.entry("p")).body
    assert len(await gateway.queued("parcels-main")) == 1


async def test_a_thousand_senders_of_one_job_make_one_job(gateway):
    receipts = await asyncio.gather(*(gateway.accept("p") for _ in range(1000)))

    transitions = [receipt.recorded_as for receipt in receipts]
    assert (transitions.count(NEW), transitions.count(DUPLICATE)) == (1, 999)
    assert len(await gateway.queued("parcels-main")) == 1


@pytest.mark.parametrize("name", ["", "x" * 500, "line\nbreak", "nul\0", "half \ud800"])
async def test_a_key_that_cannot_be_kept_is_refused(gateway, name):
    workload = Parcels()
    workload.key = lambda data: name

    with pytest.raises(InvalidContent):
        await gateway.intake.accept(workload, Parcel(id="p"))

    assert await gateway.store.counts("parcels") == {}


# --- shared commits -------------------------------------------------------------------------------------------


async def test_requests_that_arrive_during_a_commit_share_the_next_one(gateway):
    gate = Gate()
    gateway.store.before("record", gate)
    first = asyncio.create_task(gateway.accept("first"))
    await gate.waiting.wait()
    others = [asyncio.create_task(gateway.accept(f"p{n}")) for n in range(50)]
    await asyncio.sleep(0)

    gate.open.set()
    await asyncio.gather(first, *others)

    assert gate.sizes == [1, 50]


async def test_a_commit_has_a_largest_size(gateway):
    gate = Gate()
    gateway.store.before("record", gate)
    first = asyncio.create_task(gateway.accept("first"))
    await gate.waiting.wait()
    others = [asyncio.create_task(gateway.accept(f"p{n}")) for n in range(600)]
    await asyncio.sleep(0)

    gate.open.set()
    await asyncio.gather(first, *others)

    assert sum(gate.sizes) == 601
    assert max(gate.sizes) <= 256


async def test_the_next_commit_does_not_wait_for_the_queue(gateway):
    gate = Gate()

    async def hold_back(queue, jobs):
        await gate(jobs)

    gateway.broker.before("publish", hold_back)
    first = asyncio.create_task(gateway.accept("a"))
    await gate.waiting.wait()
    second = asyncio.create_task(gateway.accept("b"))

    await eventually(lambda: gateway.store.entry("parcels", "parcel:b"))

    assert not first.done()
    gate.open.set()
    assert [receipt.queued for receipt in await asyncio.gather(first, second)] == [True, True]


async def test_a_file_serves_many_requests_with_few_commits(tmp_path):
    async with assembled(path=tmp_path / "holdfast.db") as gateway:
        await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(500)))

        assert gateway.store.calls["record"] <= 20
        assert await gateway.store.counts("parcels") == {"received": 500}


async def test_a_store_that_publishes_by_itself_is_not_helped():
    async with assembled(outbox=True) as gateway:
        gateway.broker.break_down(BrokerUnavailable(), "publish")

        receipts = await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(3)))

        assert [receipt.queued for receipt in receipts] == [True] * 3
        assert len(await gateway.queued("parcels-main")) == 3
        assert gateway.broker.calls["publish"] == 0


# --- when things are away -------------------------------------------------------------------------------------


async def test_a_queue_that_is_away_does_not_stop_intake(gateway):
    gateway.broker.break_down(BrokerUnavailable(), "publish")

    receipt = await gateway.accept("p")

    assert (receipt.recorded_as, receipt.queued) == (NEW, False)
    assert await gateway.status("p") is Status.RECEIVED
    gateway.broker.repair()
    gateway.clock.advance(GRACE)
    assert (await gateway.maintenance.round()).republished == 1
    assert [job_id for job_id, _ in await gateway.queued("parcels-main")] == ["parcel.p"]


async def test_a_duplicate_of_a_job_that_was_never_queued_queues_it(gateway):
    gateway.broker.fail("publish", BrokerUnavailable())
    assert (await gateway.accept("p")).queued is False

    second = await gateway.accept("p")

    assert (second.recorded_as, second.queued) == (DUPLICATE, True)
    assert len(await gateway.queued("parcels-main")) == 1


async def test_a_duplicate_of_a_settled_job_is_not_queued(gateway):
    await gateway.accept("p")
    async with gateway.working():
        await gateway.until("p", Status.PROCESSED)

    assert (await gateway.accept("p")).recorded_as is DUPLICATE
    assert await gateway.queued("parcels-main") == []


async def test_nobody_waits_for_a_queue_that_is_silent(gateway, monkeypatch):
    monkeypatch.setattr("holdfast.engine.intake._PATIENCE", timedelta(milliseconds=20))
    never = asyncio.Event()

    async def silence(*_):
        await never.wait()

    gateway.broker.before("publish", silence)
    assert (await gateway.accept("p")).queued is False

    receipts = await asyncio.gather(*(gateway.accept(f"q{n}") for n in range(20)))

    assert [receipt.queued for receipt in receipts] == [False] * 20
    assert gateway.broker.calls["publish"] == 1  # the others did not even ask
    assert await gateway.status("q19") is Status.RECEIVED


async def test_whatever_is_wrong_with_the_queue_the_sender_gets_an_answer(gateway):
    gateway.broker.fail("publish", RuntimeError("a bug in the adapter"))

    receipt = await asyncio.wait_for(gateway.accept("p"), 60)

    assert (receipt.recorded_as, receipt.queued) == (NEW, False)


@pytest.mark.parametrize("error", [StoreUnavailable("disk full"), RuntimeError("a bug in the adapter")])
async def test_a_ledger_that_cannot_record_means_not_accepted(gateway, error):
    gateway.store.fail("record", error)

    with pytest.raises(StoreUnavailable):
        await gateway.accept("p")

    assert await gateway.store.counts("parcels") == {}
    assert await gateway.queued("parcels-main") == []
    assert (await gateway.accept("p")).recorded_as is NEW


async def test_a_failed_commit_fails_its_requests_and_no_others(gateway):
    gate = Gate()
    gateway.store.before("record", gate)
    first = asyncio.create_task(gateway.accept("first"))
    await gate.waiting.wait()
    gateway.store.fail("record", StoreUnavailable())
    second = [asyncio.create_task(gateway.accept(f"p{n}")) for n in range(3)]
    await asyncio.sleep(0)
    gate.open.set()

    assert (await first).recorded_as is NEW
    assert [type(error) for error in await asyncio.gather(*second, return_exceptions=True)] == [StoreUnavailable] * 3
    assert (await gateway.accept("third")).recorded_as is NEW


async def test_a_job_that_cannot_be_kept_takes_no_other_with_it(gateway):
    class Careless(Parcels):
        def labels(self, data):
            return {"place": "half \ud800"}

    gate = Gate()
    gateway.store.before("record", gate)
    first = asyncio.create_task(gateway.accept("first"))
    await gate.waiting.wait()
    good = [asyncio.create_task(gateway.accept(f"p{n}")) for n in range(3)]
    bad = asyncio.create_task(gateway.intake.accept(Careless(), Parcel(id="bad")))
    await asyncio.sleep(0)
    gate.open.set()

    assert [receipt.recorded_as for receipt in await asyncio.gather(first, *good)] == [NEW] * 4
    with pytest.raises(StoreUnavailable):
        await bad


async def test_too_many_waiting_requests_are_turned_away(gateway):
    intake, gate = Intake(gateway.store, gateway.broker, max_pending=3), Gate()
    gateway.store.before("record", gate)
    waiting = [asyncio.create_task(intake.accept(gateway.workload, Parcel(id=f"p{n}"))) for n in range(3)]
    await gate.waiting.wait()

    with pytest.raises(IntakeSaturated):
        await intake.accept(gateway.workload, Parcel(id="one too many"))

    gate.open.set()
    assert [receipt.recorded_as for receipt in await asyncio.gather(*waiting)] == [NEW] * 3
    assert (await intake.accept(gateway.workload, Parcel(id="later"))).recorded_as is NEW


async def test_a_sender_that_hangs_up_does_not_lose_the_job(gateway):
    gate = Gate()
    gateway.store.before("record", gate)
    impatient = asyncio.create_task(gateway.accept("p"))
    await gate.waiting.wait()
    patient = asyncio.create_task(gateway.accept("q"))
    waiting_too = asyncio.create_task(gateway.accept("r"))
    await asyncio.sleep(0)

    impatient.cancel()
    waiting_too.cancel()
    gate.open.set()

    assert (await patient).recorded_as is NEW
    await gateway.intake.drain()
    assert await gateway.store.counts("parcels") == {"received": 3}
    assert len(await gateway.queued("parcels-main")) == 3


async def test_draining_waits_for_everything_that_was_accepted(gateway):
    gate = Gate()
    gateway.store.before("record", gate)
    accepting = asyncio.create_task(gateway.accept("p"))
    await gate.waiting.wait()
    draining = asyncio.create_task(gateway.intake.drain())
    await asyncio.sleep(0)
    assert not draining.done()

    gate.open.set()
    await draining

    assert (await accepting).queued is True
