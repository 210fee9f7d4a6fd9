"""Jobs in the harness: what runs at once, what runs when the clock is moved, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import App, Context, Done, Expired, InvalidQuery, Job, NotFound, Reject, Retry, Snooze, Status, Workload
from holdfast.contracts.ledger import Cancelled
from holdfast.contracts.submissions import Conflict, JobCancelled, JobExpired, JobFailed
from holdfast.testing import Harness, Stuck
from tests.harness.shop import Busy, Order, Shop, Synced


def outcomes(entry):
    return [(each.outcome.value, each.error_code) for each in entry.attempts]


def failing(times, *, then=None):
    def script(order, ctx):
        if ctx.job.attempt <= times:
            raise Busy
        return then

    return script


# --- what runs when ---------------------------------------------------------------------------------------------------


async def test_nothing_runs_before_settle(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"))
    await asyncio.sleep(0)

    assert (await h.job(order)).status is Status.RECEIVED
    with pytest.raises(TimeoutError, match="sync_order '1' has not ended: it is received, and due at 2026-01-05T12:00"):
        await h.result(order)
    assert shop.calls == []


async def test_a_job_runs_and_has_a_typed_result_and_its_records(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()

    assert await h.result(order) == Synced(number="1", attempt=1)
    assert (await h.record("orders", "1"))["state"] == "synced"
    with pytest.raises(NotFound):
        await h.record("orders", "2")


async def test_the_same_job_again_is_a_duplicate_and_another_content_is_a_conflict(shop, h):
    await h.submit(shop.sync_order, Order(number="1"))
    assert (await h.submit(shop.sync_order, Order(number="1"))).duplicate
    with pytest.raises(Conflict):
        await h.submit(shop.sync_order, Order(number="1", shop="south"))
    await h.settle()
    assert shop.calls == ["1#1"]


async def test_retries_run_at_their_times_and_at_no_other(shop, h):
    shop.script = failing(2)
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()
    await h.settle()
    assert shop.calls == ["1#1"]
    await h.advance("9s")
    assert shop.calls == ["1#1"]
    await h.advance("1s")
    assert shop.calls == ["1#1", "1#2"]
    await h.advance("1h")

    entry = await h.job(order)
    assert outcomes(entry) == [("failed", "BUSY"), ("failed", "BUSY"), ("succeeded", None)]
    started = [each.started_at - entry.first_seen_at for each in entry.attempts]
    assert started == [timedelta(0), timedelta(seconds=10), timedelta(seconds=70)]


async def test_the_clock_ends_where_it_was_moved_to(shop, h):
    start = h.now
    shop.script = failing(1)
    await h.submit(shop.sync_order, Order(number="1"))
    await h.advance("1m")
    assert h.now - start == timedelta(minutes=1)
    await h.advance_to(start + timedelta(hours=2))
    assert h.now - start == timedelta(hours=2)
    with pytest.raises(ValueError, match="does not go back"):
        await h.advance_to(start)


async def test_a_delayed_job_waits_for_its_time(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"), delay="10m")
    await h.advance("9m")
    assert shop.calls == []
    await h.advance("1m")
    assert (await h.job(order)).attempts[0].started_at == order.received_at + timedelta(minutes=10)


async def test_a_snoozed_job_costs_no_attempt(shop, h):
    naps = iter([True, True, False])
    shop.script = lambda order, ctx: Snooze(timedelta(minutes=5)) if next(naps) else None
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.advance("9m")
    assert shop.calls == ["1#1", "1#1"]
    await h.advance("1m")
    assert await h.result(order) == Synced(number="1", attempt=1)


async def test_retries_with_random_waits_are_the_same_in_every_run():
    async def run():
        app, started = App(), []

        @app.job(key="number", attempts=5)
        async def flaky(order: Order, ctx: Context) -> None:
            started.append(h.now)
            raise Busy

        async with Harness(app) as h:
            for number in range(3):
                await h.submit(flaky, Order(number=str(number)))
            await h.advance("1d")
            assert len(await h.dead_letters()) == 3
        return started

    first = await run()
    assert len(set(first)) > 3
    assert await run() == first


# --- how jobs end -----------------------------------------------------------------------------------------------------


async def test_the_last_failure_is_a_dead_letter_with_every_attempt(shop, h):
    shop.script = failing(3)
    order = await h.submit(shop.sync_order, Order(number="1"))
    other = await h.submit(shop.send_mail, Order(number="1"))
    await h.advance("2m")

    (letter,) = await h.dead_letters(order)
    assert (letter.reason_code, len(letter.attempts)) == ("BUSY_EXHAUSTED", 3)
    assert letter.attempts[0].traceback is not None
    assert await h.dead_letters() == await h.dead_letters(shop.sync_order) == [letter]
    assert await h.dead_letters(other) == []
    with pytest.raises(JobFailed, match="BUSY_EXHAUSTED") as failed:
        await h.result(order)
    assert failed.value.letter_id == letter.id


async def test_a_replayed_letter_runs_again(shop, h):
    shop.script = lambda order, ctx: Reject("BROKEN", "no")
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()
    (letter,) = await h.dead_letters(order)

    shop.script = lambda order, ctx: None
    await h.replay(letter, reason="the shop is repaired")
    assert shop.calls == ["1#1"]
    await h.settle()

    assert await h.result(order) == Synced(number="1", attempt=1)
    (letter,) = await h.dead_letters(order)
    assert letter.review_status == "replayed"
    assert {each.reason for each in letter.decisions} == {"the shop is repaired"}


async def test_a_job_expires_at_its_deadline_and_not_before(shop, h):
    shop.script = lambda order, ctx: Snooze(timedelta(minutes=50))
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.advance("59m")
    assert (await h.job(order)).status is Status.RECEIVED
    await h.advance("1m")
    assert (await h.job(order)).status is Status.EXPIRED
    assert (await h.job(order)).updated_at == order.received_at + timedelta(hours=1)
    with pytest.raises(JobExpired):
        await h.result(order)


async def test_a_long_advance_stops_at_the_deadline(shop, h):
    shop.script = lambda order, ctx: Snooze(timedelta(minutes=50))
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.advance("7d")
    assert (await h.job(order)).updated_at == order.received_at + timedelta(hours=1)


async def test_a_job_that_waits_can_be_cancelled(shop, h):
    order = await h.submit(shop.sync_order, Order(number="1"), delay="10m")
    assert await h.cancel(order) is Cancelled.ENDS
    await h.advance("1h")
    assert shop.calls == []
    with pytest.raises(JobCancelled):
        await h.result(order)


async def test_a_job_in_work_learns_at_once_that_it_was_cancelled(shop, h):
    started = asyncio.Event()

    async def work(order, ctx):
        started.set()
        await ctx.until_cancelled()
        return Expired()

    shop.script = work
    order = await h.submit(shop.sync_order, Order(number="1"))
    settling = asyncio.create_task(h.settle())
    await started.wait()
    assert await h.cancel(order) is Cancelled.STOPS
    await settling
    with pytest.raises(JobCancelled):
        await h.result(order)


async def test_progress_is_in_the_entry(shop, h):
    async def work(order, ctx):
        ctx.progress(1, 2, "halfway")
        return Retry("LATER", "later")

    shop.script = work
    order = await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()
    assert (await h.job(order)).progress["done"] == 1


# --- follow-ups, limits, threads --------------------------------------------------------------------------------------


async def test_follow_ups_run_in_the_same_settle_and_are_listed(shop, h):
    shop.script = lambda order, ctx: ctx.submit(shop.send_mail, Order(number=f"mail-{order.number}"))
    await h.submit(shop.send_mail, Order(number="own"))
    await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()

    assert sorted(shop.calls) == ["1#1", "mail mail-1", "mail own"]
    assert await h.sent(shop.send_mail) == [Order(number="mail-1")]
    assert [each.key for each in await h.jobs(shop.send_mail)] == ["own", "mail-1"]


async def test_a_rate_limit_lets_jobs_go_as_time_passes(shop, h):
    for number in range(5):
        await h.submit(shop.limited, Order(number=str(number)))
    await h.settle()
    assert len(shop.calls) == 2
    await h.advance("59s")
    assert len(shop.calls) == 2
    await h.advance("1s")
    assert len(shop.calls) == 4
    await h.advance("1m")
    assert len(shop.calls) == 5


@pytest.mark.parametrize(
    ("job", "seconds"), [("limited", [0, 0, 60, 60, 120]), ("permitted", [0, 0, 0, 60.001, 60.001])]
)
async def test_a_long_advance_stops_when_a_limit_lets_jobs_go(shop, h, job, seconds):
    start, at = h.now, []
    shop.calls = Times(lambda: at.append((h.now - start).total_seconds()))
    for number in range(5):
        await h.submit(job, {"number": str(number)})
    await h.advance("1h")
    assert at == seconds


class Times(list):
    """Calls this for each item that is appended."""

    def __init__(self, call):
        super().__init__()
        self._call = call

    def append(self, item):
        super().append(item)
        self._call()


async def test_jobs_that_wait_for_a_permit_stay_in_work_and_keep_their_leases(shop, h):
    jobs = [await h.submit(shop.permitted, Order(number=str(number))) for number in range(8)]
    await h.settle()
    assert len(shop.calls) == 3
    assert [(await h.job(each)).status for each in jobs].count(Status.PROCESSING) == 5
    await h.advance("61s")  # twice as long as a lease
    assert len(shop.calls) == 6
    await h.advance("61s")
    assert len(shop.calls) == 8
    assert {(await h.job(each)).attempt_count for each in jobs} == {1}


async def test_plain_functions_run_in_threads_and_wait_for_permits_too(shop, h):
    jobs = [await h.submit(shop.in_a_thread, Order(number=str(number))) for number in range(5)]
    await h.settle()
    assert len(shop.calls) == 2
    await h.advance("3m")
    assert [await h.result(each) for each in jobs] == ["0", "1", "2", "3", "4"]
    assert "MainThread" not in shop.threads


async def test_more_jobs_than_slots_all_wait_for_a_permit():
    app, calls = App(), []

    @app.job(key="number", concurrency=2)
    async def slow(order: Order, ctx: Context) -> None:
        async with ctx.limit("slow", "1/m"):
            calls.append(order.number)

    async with Harness(app) as h:
        for number in range(4):
            await h.submit(slow, Order(number=str(number)))
        await h.advance("10m")
    assert calls == ["0", "1", "2", "3"]


async def test_handlers_may_wait_in_real_time(shop, h):
    async def work(order, ctx):
        await asyncio.sleep(0.01)

    shop.script = work
    orders = [await h.submit(shop.sync_order, Order(number=str(number))) for number in range(3)]
    await h.settle()
    assert [await h.result(each) for each in orders] == [Synced(number=str(n), attempt=1) for n in range(3)]


async def test_a_failing_hook_is_in_the_log_of_the_test(h, shop, caplog):
    shop.sync_order.workload.on_transition = lambda transition, job: 1 / 0
    await h.submit(shop.sync_order, Order(number="1"))
    await h.settle()
    assert "ZeroDivisionError" in caplog.text


# --- what does not end ------------------------------------------------------------------------------------------------


async def test_a_job_that_never_ends_is_named(shop):
    async def work(order, ctx):
        await asyncio.Event().wait()

    shop.script = work
    async with Harness(shop.app, limit=0.05) as h:
        await h.submit(shop.sync_order, Order(number="1"))
        with pytest.raises(Stuck, match=r"After 0\.05 s of real time, these jobs are still in work: sync_order '1'\."):
            await h.settle()


async def test_a_thread_that_never_ends_is_named():
    app, end = App(), threading.Event()

    @app.job(key="number")
    def hang(order: Order) -> None:
        end.wait()

    try:
        async with Harness(app, limit=0.05) as h:
            await h.submit(hang, Order(number="1"))
            with pytest.raises(Stuck, match=r"still in work: hang '1'\.$"):
                await h.settle()
    finally:
        end.set()


async def test_a_job_that_comes_again_and_again_is_named(shop):
    shop.script = lambda order, ctx: Snooze(timedelta(0))
    async with Harness(shop.app, limit=0.05) as h:
        await h.submit(shop.sync_order, Order(number="1"))
        await h.submit(shop.sync_order, Order(number="2"), delay="1m")
        with pytest.raises(Stuck, match=r"these jobs are still (in work|due): sync_order '1'\.$"):
            await h.settle()


# --- hermetic, and the class form -------------------------------------------------------------------------------------


async def test_no_setting_comes_from_outside(shop, monkeypatch, tmp_path):
    monkeypatch.setenv("WORKER_LEASE_SECONDS", "7200")
    monkeypatch.setenv("REDIS_URL", "redis://nowhere.example:6379")
    monkeypatch.setenv("MONGO_URI", "mongodb://nowhere.example")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text("worker_concurrency = 0\n")
    async with Harness(shop.app) as h:
        h.crash("worker.claimed")
        order = await h.submit(shop.sync_order, Order(number="1"))
        await h.advance("31s")
        assert (await h.result(order)).attempt == 2
    assert [each.name for each in tmp_path.iterdir()] == ["holdfast.toml"]


async def test_settings_can_be_given(shop):
    async with Harness(shop.app, settings={"worker_lease_seconds": 5}) as h:
        h.crash("worker.claimed")
        order = await h.submit(shop.sync_order, Order(number="1"))
        await h.advance("6s")
        assert (await h.result(order)).attempt == 2


async def test_installed_features_can_be_added(shop):
    async with Harness(shop.app, features=True) as h:
        order = await h.submit(shop.sync_order, Order(number="1"))
        await h.settle()
        assert await h.result(order)
        assert await h.jobs("courier") == []
    async with Harness(shop.app) as h:
        with pytest.raises(InvalidQuery, match="There is no workload 'courier'"):
            await h.jobs("courier")


class Parcels(Workload[Order]):
    name = "parcels"
    contract = Order
    queue = "parcels"
    dead_letter_queue = "parcels-dead"

    def __init__(self):
        self.opened = 0

    def key(self, data):
        return data.number

    async def start(self):
        self.opened += 1

    async def stop(self):
        self.opened -= 1

    async def handle(self, job: Job[Order], context):
        assert self.opened == 1
        return Done(result={"number": job.data.number})


async def test_workloads_of_the_class_form_are_opened_worked_and_closed():
    parcels = Parcels()
    async with Harness(App([parcels])) as h:
        parcel = await h.submit(parcels, Order(number="1"))
        named = await h.submit("parcels", {"number": "2"})
        await h.settle()
        assert await h.result(parcel) == {"number": "1"}
        assert await h.result(named) == {"number": "2"}
    assert parcels.opened == 0


async def test_two_harnesses_share_nothing():
    one, two = Shop(), Shop()
    async with Harness(one.app) as first, Harness(two.app) as second:
        order = await first.submit(one.sync_order, Order(number="1"))
        await first.advance("1h")
        await second.settle()
        assert await first.result(order)
        assert await second.jobs(two.sync_order) == []
        assert first.now - second.now == timedelta(hours=1)
