"""Submitting jobs to a Holdfast in one's own process, following them and cancelling them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from holdfast import (
    App,
    Cancelled,
    Conflict,
    Holdfast,
    InvalidContent,
    InvalidQuery,
    JobCancelled,
    JobExpired,
    JobFailed,
    NotFound,
    NotRunning,
    Status,
    letter_id,
)
from tests.embedding.work import QUICK, Invoice, Invoices, app_with
from tests.support.waiting import eventually


class Order(BaseModel):
    number: str


@pytest.fixture
async def hold(tmp_path):
    app, workload = app_with()
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK) as running:
        running.invoices = workload
        yield running
        workload.gate.set()


async def test_a_job_is_done_and_its_result_comes_back(place):
    app, workload = app_with()
    async with Holdfast(app, **place) as hold:
        receipt = await hold.submit(workload, Invoice(number="1", cents=500))
        assert (receipt.workload, receipt.key, receipt.duplicate, receipt.due_at) == ("invoices", "1", False, None)
        assert await hold.result(receipt, timeout=60) == {"total": 500}
        entry = await hold.job(receipt)
        assert (entry.status, entry.attempt_count) == (Status.PROCESSED, 1)
    assert workload.finished == ["1"]


async def test_a_refused_a_cancelled_and_an_expired_job_raise_their_own_errors(place):
    class ShortLived(Invoices):
        name = "short"
        queue, dead_letter_queue = "short-main", "short-dlq"
        collections = ()
        ttl = timedelta(milliseconds=1)

    app, workload = App([first := Invoices(), ShortLived()]), first
    async with Holdfast(app, **place) as hold:
        failed = await hold.submit(workload, Invoice(number="bad", cents=1))
        with pytest.raises(JobFailed) as refusal:
            await hold.result(failed, timeout=60)
        assert (refusal.value.code, refusal.value.message) == ("NOTHING_TO_PAY", "An invoice must ask for more.")
        assert refusal.value.letter_id == letter_id("invoices", "bad", 1)
        assert "NOTHING_TO_PAY" in str(refusal.value)

        waits = await hold.submit(workload, Invoice(number="later", cents=1), delay="1h")
        assert waits.due_at == waits.received_at + timedelta(hours=1)
        assert await hold.cancel(waits) is Cancelled.ENDS
        with pytest.raises(JobCancelled):
            await hold.result(waits, timeout=60)
        assert await hold.cancel(waits) is Cancelled.TOO_LATE

        late = await hold.submit("short", {"number": "late", "cents": 1})
        with pytest.raises(JobExpired):
            await hold.result(late, timeout=60)
    assert workload.finished == []


async def test_the_same_job_again_is_a_duplicate_and_another_content_is_a_conflict(hold):
    invoice = Invoice(number="1", cents=500)
    first = await hold.submit("invoices", invoice)
    again = await hold.submit(hold.invoices, invoice)
    assert (again.duplicate, again.received_at, again.job_id) == (True, first.received_at, first.job_id)
    with pytest.raises(Conflict, match="'1'") as conflict:
        await hold.submit("invoices", Invoice(number="1", cents=501))
    assert (conflict.value.workload, conflict.value.key) == ("invoices", "1")


async def test_wrong_data_is_refused_with_its_fields_and_without_its_values(hold):
    with pytest.raises(TypeError, match="takes Invoice, not Order"):
        await hold.submit(hold.invoices, Order(number="1"))
    with pytest.raises(TypeError, match="takes Invoice, not str"):
        await hold.submit("invoices", "number 1")
    with pytest.raises(InvalidContent, match="cents") as refusal:
        await hold.submit("invoices", {"number": "1", "cents": -777})
    assert [each.field for each in refusal.value.problems] == ["cents"]
    assert "777" not in str(refusal.value)
    with pytest.raises(ValueError, match="duration"):
        await hold.submit("invoices", {"number": "1", "cents": 1}, delay="soon")
    with pytest.raises(ValueError, match="365 days"):
        await hold.submit("invoices", {"number": "1", "cents": 1}, delay="400d")
    with pytest.raises(ValueError, match="priority"):
        await hold.submit("invoices", {"number": "1", "cents": 1}, priority=-1)
    assert [entry async for entry in hold.jobs("invoices")] == []


async def test_a_workload_that_is_not_here_is_named(hold):
    with pytest.raises(InvalidQuery, match=r"no workload 'invoicse' in this app\. Known: .*invoices"):
        await hold.submit("invoicse", {"number": "1", "cents": 1})
    with pytest.raises(InvalidQuery, match="another one"):
        await hold.submit(Invoices(), Invoice(number="1", cents=1))
    with pytest.raises(InvalidQuery, match="POST /v1/email/send"):
        await hold.submit("email", {})


async def test_many_jobs_are_accepted_in_few_commits_and_keep_their_order(hold):
    items = [Invoice(number=str(number), cents=number + 1) for number in range(1200)]
    receipts = await hold.submit_many(hold.invoices, items)
    assert [each.key for each in receipts] == [each.number for each in items]
    results = await asyncio.gather(*(hold.result(each, timeout="2m") for each in receipts))
    assert results == [{"total": each.cents} for each in items]


async def test_many_jobs_with_one_wrong_one(hold):
    good, bad = {"number": "1", "cents": 1}, {"number": "2"}
    with pytest.raises(InvalidContent):
        await hold.submit_many("invoices", [good, bad])
    assert [entry async for entry in hold.jobs("invoices")] == []
    await hold.submit("invoices", {"number": "2", "cents": 2})
    with pytest.raises(Conflict):
        await hold.submit_many("invoices", [{"number": "2", "cents": 3}, good])
    assert {entry.key async for entry in hold.jobs("invoices")} == {"1", "2"}


async def test_a_result_that_takes_too_long_is_a_timeout_and_can_be_asked_for_again(hold):
    receipt = await hold.submit("invoices", {"number": "slow", "cents": 1})
    with pytest.raises(TimeoutError, match="has not ended within 50ms"):
        await hold.result(receipt, timeout="50ms")
    hold.invoices.gate.set()
    assert await hold.result(receipt) == {"total": 1}


async def test_jobs_are_listed_page_by_page(hold):
    numbers = [str(number) for number in range(7)]
    receipts = await hold.submit_many("invoices", [{"number": each, "cents": 1} for each in numbers])
    await hold.submit("invoices", {"number": "large", "cents": 5000}, delay="1h")
    await asyncio.gather(*map(hold.result, receipts))
    assert {entry.key async for entry in hold.jobs("invoices", status="processed", page=2)} == set(numbers)
    assert [entry.key async for entry in hold.jobs("invoices", labels={"size": "large"})] == ["large"]
    assert [entry.key async for entry in hold.jobs("invoices", status=Status.RECEIVED)] == ["large"]
    assert [entry.key async for entry in hold.jobs("invoices", key_prefix="lar")] == ["large"]
    assert [entry async for entry in hold.jobs("invoices", before=receipts[0].received_at)] == []
    assert len([entry async for entry in hold.jobs("invoices", after=receipts[0].received_at)]) == 8
    with pytest.raises(InvalidQuery, match="no status 'done'"):
        _ = [entry async for entry in hold.jobs("invoices", status="done")]


async def test_a_job_is_found_by_its_key(hold):
    receipt = await hold.submit("invoices", {"number": "9", "cents": 1})
    assert (await hold.job(("invoices", "9"))).job_id == receipt.job_id
    assert (await hold.job((hold.invoices, "9"))).job_id == receipt.job_id
    with pytest.raises(NotFound, match="no job with the key '10'"):
        await hold.job(("invoices", "10"))
    assert await hold.cancel(("invoices", "10")) is Cancelled.TOO_LATE


async def test_calls_before_the_start_and_after_the_stop_are_refused(tmp_path):
    app, workload = app_with()
    hold = Holdfast(app, data=tmp_path / "data", settings=QUICK)
    with pytest.raises(NotRunning, match="async with"):
        await hold.submit(workload, Invoice(number="1", cents=1))
    async with hold:
        receipt = await hold.submit(workload, Invoice(number="1", cents=1))
        await hold.result(receipt)
    with pytest.raises(NotRunning):
        await hold.result(receipt)
    async with hold:  # it may be started again
        assert await hold.result(receipt) == {"total": 1}


async def test_a_call_from_another_event_loop_is_refused(hold):
    def elsewhere() -> None:
        with pytest.raises(NotRunning, match="another event loop"):
            asyncio.run(hold.submit("invoices", {"number": "1", "cents": 1}))

    await asyncio.to_thread(elsewhere)


async def test_without_a_worker_another_process_does_the_jobs(tmp_path):
    app, workload = app_with()
    place = {"data": tmp_path / "data", "settings": QUICK}
    async with Holdfast(app, **place, worker=False) as sender:
        receipt = await sender.submit(workload, Invoice(number="1", cents=1))
        with pytest.raises(TimeoutError):
            await sender.result(receipt, timeout="200ms")
        assert workload.began == []
        async with Holdfast(app, **place) as helper:  # two on one file
            assert await sender.result(receipt, timeout=60) == {"total": 1}
            assert await helper.result(receipt, timeout=60) == {"total": 1}
    assert workload.finished == ["1"]


async def test_two_with_different_apps_share_one_file(tmp_path):
    class Reminders(Invoices):
        name, queue, dead_letter_queue = "reminders", "reminders-main", "reminders-dlq"

    place = {"data": tmp_path / "data", "settings": QUICK}
    first, second = app_with(), app_with(Reminders())
    async with Holdfast(first[0], **place) as one, Holdfast(second[0], **place) as other:
        results = await asyncio.gather(
            *(one.result(each) for each in await one.submit_many("invoices", _items(50))),
            *(other.result(each) for each in await other.submit_many("reminders", _items(50))),
        )
        assert results == [{"total": 1}] * 100
        with pytest.raises(InvalidQuery, match="no workload 'reminders'"):
            await one.job(("reminders", "1"))
    assert sorted(first[1].finished) == sorted(second[1].finished) == sorted(str(each) for each in range(50))


def _items(count):
    return [{"number": str(number), "cents": 1} for number in range(count)]


@pytest.mark.parametrize("maintenance", [True, False])
async def test_maintenance_runs_inside_or_not(tmp_path, maintenance):
    """An overdue job without a worker is expired by maintenance, and by nothing else."""

    class ShortLived(Invoices):
        ttl = timedelta(milliseconds=1)

    app, workload = app_with(ShortLived())
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK, worker=False, maintenance=maintenance) as hold:
        receipt = await hold.submit(workload, Invoice(number="1", cents=1))
        if maintenance:
            await eventually(lambda: _is(hold, receipt, Status.EXPIRED))
        else:
            with pytest.raises(TimeoutError):
                await hold.result(receipt, timeout="500ms")


async def test_a_worker_without_maintenance_works(tmp_path):
    app, workload = app_with()
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK, maintenance=False) as hold:
        receipt = await hold.submit(workload, Invoice(number="1", cents=1))
        assert await hold.result(receipt, timeout=60) == {"total": 1}


async def _is(hold, receipt, status):
    return (await hold.job(receipt)).status is status
