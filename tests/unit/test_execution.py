"""Execution: what each outcome leads to, and that no job decides the end of another."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Done, Expired, PermanentError, Reject, Retry, Snooze, ThrottledError, Upsert
from holdfast.contracts.ledger import Status
from holdfast.contracts.queues import QueueJob
from holdfast.telemetry import events
from tests.support.gateway import assembled, empty, outcomes
from tests.support.valve import Valve
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, BatchedParcels, Parcel, Parcels, deliver


async def _ready(gateway, queue):
    return (await gateway.broker.depth(queue)).ready


# --- what an outcome leads to -----------------------------------------------------------------------------------------


async def test_a_job_is_taken_handled_settled_and_acknowledged():
    async with assembled() as gateway:
        await gateway.accept("p", place="home")
        async with gateway.working():
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert entry.attempts[0].worker == "worker-1"
        assert entry.result == {"at": "home"}
        assert (await gateway.store.get("parcel_places", "p"))["place"] == "home"
        assert await gateway.broker.depth("parcels-main") == await gateway.broker.depth("parcels-dead")
        (job,) = gateway.workload.handled
        assert (job.key, job.job_id, job.attempt, job.generation) == ("parcel:p", "parcel.p", 1, 1)


class Repeating(Parcels):
    """Says what a parcel returns that comes again."""

    def repeated(self, result):
        return {"again": result["at"]}


@pytest.mark.parametrize(
    ("workload", "script", "status", "returned"),
    [
        (Repeating, deliver, Status.PROCESSED, '{"again":"depot"}'),
        (Repeating, lambda job: Done(), Status.PROCESSED, "null"),  # there is no result, and the hook raises
        (Repeating, lambda job: Reject("NO", "no"), Status.DEAD_LETTERED, "null"),
        (Parcels, deliver, Status.PROCESSED, "null"),
    ],
)
async def test_a_job_that_comes_again_returns_what_its_workload_says(workload, script, status, returned):
    async with assembled(workload(script)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", status)
            await eventually(lambda: empty(gateway))
            handlings = []
            gateway.broker.before("settle", lambda given: _note(handlings, given))
            claims = gateway.store.calls["claim"]
            await gateway.broker.publish("parcels-main", [QueueJob("parcel.p", Parcel(id="p").model_dump_json())])
            await eventually(lambda: empty(gateway))

        assert [each.result for each in handlings] == [returned]
        assert gateway.store.calls["claim"] == claims + 1  # the claim itself brings the result
        assert len(gateway.workload.handled) == 1


async def _note(handlings, acknowledgements):
    handlings += [each.handling for each in acknowledgements]


async def test_the_log_tells_each_attempt_once(seen):
    async with assembled() as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)

    (told,) = [fields for event, fields in seen if event == events.ATTEMPT_SETTLED]
    assert (told["workload"], told["key"], told["attempt"], told["outcome"]) == ("parcels", "parcel:p", 1, "processed")
    assert told["trace_id"] == "trace-p"
    assert told["duration_ms"] >= 0


async def test_a_transient_failure_is_tried_again_after_its_wait():
    async with assembled(Parcels(lambda job: Retry("BUSY", "later") if job.attempt == 1 else deliver(job))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            failed = await gateway.until("p", Status.FAILED)
            assert failed.not_before - gateway.clock.now() == RETRY_AFTER
            assert (failed.last_error_code, failed.last_error_message) == ("BUSY", "later")
            gateway.clock.advance(RETRY_AFTER)
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("failed", "BUSY"), ("succeeded", None)]
        assert [(job.attempt, job.data.attempt) for job in gateway.workload.handled] == [(1, 1), (2, 2)]


async def test_the_queue_carries_the_number_of_the_next_attempt():
    async with assembled(Parcels(lambda job: Retry("BUSY"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.FAILED)
        gateway.clock.advance(RETRY_AFTER)

        ((_, data),) = await gateway.queued("parcels-main")

        assert Parcel.model_validate_json(data).attempt == 2
        assert Parcel.model_validate_json((await gateway.entry("p")).body).attempt == 1


async def test_the_last_attempt_that_fails_becomes_a_dead_letter(seen):
    async with assembled(Parcels(lambda job: Retry("BUSY", "later"))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            for attempt in (1, 2):
                await eventually(lambda attempt=attempt: len(gateway.workload.handled) == attempt)
                await gateway.until("p", Status.FAILED)
                gateway.clock.advance(RETRY_AFTER)
            entry = await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: _ready(gateway, "parcels-dead"))

        assert outcomes(entry) == [("failed", "BUSY")] * 3
        (letter,) = await gateway.letters()
        assert (letter.reason_code, letter.attempt_count, letter.attempts) == ("BUSY_EXHAUSTED", 3, entry.attempts)
        assert Parcel.model_validate_json(letter.body).attempt == 3
        assert Parcel.model_validate_json(entry.body).attempt == 1  # what a replay runs
        assert [job_id for job_id, _ in await gateway.queued("parcels-dead")] == [letter.id]
        assert await gateway.queued("parcels-main") == []
    (told,) = [fields for event, fields in seen if event == events.JOB_DEAD_LETTERED]
    assert (told["letter"], told["reason_code"]) == (letter.id, "BUSY_EXHAUSTED")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (lambda job: Reject("HTTP_404", "gone"), "HTTP_404"),
        (lambda job: (_ for _ in ()).throw(PermanentError("NO_SUCH_PLACE")), "NO_SUCH_PLACE"),
    ],
)
async def test_a_permanent_failure_is_dead_lettered_at_once(script, code):
    async with assembled(Parcels(script)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", code)]
        assert [letter.reason_code for letter in await gateway.letters()] == [code]


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (ThrottledError(retry_after=timedelta(minutes=5)), timedelta(minutes=5)),
        (ThrottledError(retry_after=timedelta(seconds=1)), RETRY_AFTER),
        (ValueError("odd"), RETRY_AFTER),
    ],
)
async def test_a_surprise_is_retried_not_before_the_other_side_wants_it(error, wait):
    def script(job):
        raise error

    async with assembled(Parcels(script)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.FAILED)

        assert entry.not_before - gateway.clock.now() == wait
        assert entry.last_error_code == getattr(error, "code", "UNCLASSIFIED")


@pytest.mark.parametrize("trouble", [SystemExit(1), asyncio.CancelledError(), None])
async def test_no_handler_can_end_its_worker(trouble):
    def script(job):
        if job.data.id == "bad":
            if trouble is None:
                return None
            raise trouble
        return deliver(job)

    async with assembled(Parcels(script)) as gateway:
        await gateway.accept("bad")
        await gateway.accept("good")
        async with gateway.working():
            await gateway.until("good", Status.PROCESSED)
            entry = await gateway.until("bad", Status.FAILED)

        assert entry.last_error_code in {"UNCLASSIFIED", "BAD_OUTCOME"}


async def test_a_handler_that_takes_too_long_is_ended_and_retried():
    workload = Parcels(Valve())
    workload.timeout = timedelta(milliseconds=10)
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.FAILED)

        assert entry.last_error_code == "TIMEOUT"
        assert workload.script.cancelled == ["p"]


async def test_an_error_text_that_no_store_can_keep_costs_the_job_nothing_more():
    def script(job):
        message = "cannot open caf\udce9\0"
        raise FileNotFoundError(message)

    async with assembled(Parcels(script)) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.FAILED)

        assert "cannot open caf" in entry.last_error_message


async def test_a_snoozed_job_costs_no_attempt():
    async with assembled(Parcels(lambda job: Snooze(timedelta(seconds=60)))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await eventually(lambda: len(gateway.workload.handled) == 1)
            entry = await gateway.until("p", Status.RECEIVED)
            assert (entry.attempts, entry.not_before - gateway.clock.now()) == ((), timedelta(seconds=60))
            gateway.workload.script = deliver
            gateway.clock.advance(timedelta(seconds=60))
            entry = await gateway.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert [job.attempt for job in gateway.workload.handled] == [1, 1]


async def test_a_handler_may_say_that_a_job_has_expired():
    effects = [Upsert("parcel_places", "p", {"place": "returned"})]
    async with assembled(Parcels(lambda job: Expired(effects))) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            await gateway.until("p", Status.EXPIRED)

        assert (await gateway.store.get("parcel_places", "p"))["place"] == "returned"


async def test_a_job_past_its_deadline_is_not_handled():
    workload = Parcels()
    workload.ttl = timedelta(seconds=60)
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        gateway.clock.advance(timedelta(seconds=60))
        async with gateway.working():
            entry = await gateway.until("p", Status.EXPIRED)

        assert (entry.attempts, workload.handled) == ((), [])
        assert (await gateway.store.get("parcel_places", "p"))["place"] == "lost"


async def test_a_handler_reads_what_other_jobs_have_written():
    found = []

    class Reader(Parcels):
        async def handle(self, job, context):
            found.append((context.worker, await context.get("parcel_places", "p")))
            return deliver(job)

    async with assembled(Reader()) as gateway:
        await gateway.accept("p", place="home")
        async with gateway.working():
            await gateway.until("p", Status.PROCESSED)
            await gateway.accept("q")
            await gateway.until("q", Status.PROCESSED)

    assert found[0] == ("worker-1", None)
    assert found[1][1]["place"] == "home"


# --- neighbours -------------------------------------------------------------------------------------------------------


async def test_a_slow_job_does_not_hold_its_batch():
    valve = Valve()
    async with assembled(Parcels(lambda job: valve(job) if job.data.id == "slow" else deliver(job))) as gateway:
        await asyncio.gather(gateway.accept("slow"), *(gateway.accept(f"p{n}") for n in range(30)))
        async with gateway.working(concurrency=40):
            for number in range(30):
                await gateway.until(f"p{number}", Status.PROCESSED)
            assert await gateway.status("slow") is Status.PROCESSING
            await gateway.accept("later")
            await gateway.until("later", Status.PROCESSED)
            valve.open.set()
            await gateway.until("slow", Status.PROCESSED)


async def test_no_more_jobs_are_in_work_than_there_are_slots():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        for number in range(5):
            await gateway.accept(f"p{number}")
        async with gateway.working(concurrency=2) as execution:
            await eventually(lambda: len(valve.entered) == 2)
            depth = await gateway.broker.depth("parcels-main")
            assert (execution.in_flight, depth.ready, depth.active) == (2, 3, 2)
            valve.open.set()
            for number in range(5):
                await gateway.until(f"p{number}", Status.PROCESSED)


async def test_the_next_jobs_run_while_the_last_are_committed_and_no_more_than_the_slots_wait_for_that():
    committed = asyncio.Event()

    async def hold(_):
        await committed.wait()

    async with assembled() as gateway:
        for number in range(7):
            await gateway.accept(f"p{number}")
        gateway.store.before("settle", hold)
        async with gateway.working(concurrency=2) as execution:
            await eventually(lambda: len(gateway.workload.handled) == 4)
            await asyncio.sleep(0.05)
            assert (len(gateway.workload.handled), execution.in_flight) == (4, 4)
            committed.set()
            for number in range(7):
                await gateway.until(f"p{number}", Status.PROCESSED)


async def test_an_impossible_effect_dead_letters_its_job_and_no_other(seen):
    def script(job):
        if job.data.id == "bad":
            return Done([Upsert("no_such_collection", "x", {"a": 1})])
        return deliver(job)

    async with assembled(Parcels(script)) as gateway:
        await asyncio.gather(*(gateway.accept(name) for name in ("a", "bad", "b")))
        async with gateway.working():
            await gateway.until("a", Status.PROCESSED)
            await gateway.until("b", Status.PROCESSED)
            entry = await gateway.until("bad", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", "EFFECT_REFUSED")]
        (letter,) = await gateway.letters()
        assert letter.reason_code == "EFFECT_REFUSED"
        assert "no_such_collection" in letter.reason_message
    assert [fields["jobs"] for event, fields in seen if event == events.BATCH_SPLIT] == [3]


@pytest.mark.parametrize("result", [{"not": object()}, {"half": "\ud800"}])
async def test_a_result_that_cannot_be_kept_dead_letters_its_job_and_no_other(result):
    def script(job):
        return Done(result=result) if job.data.id == "bad" else deliver(job)

    async with assembled(Parcels(script)) as gateway:
        await asyncio.gather(*(gateway.accept(name) for name in ("a", "bad", "b")))
        async with gateway.working():
            await gateway.until("a", Status.PROCESSED)
            await gateway.until("b", Status.PROCESSED)
            await gateway.until("bad", Status.DEAD_LETTERED)


async def test_jobs_that_finish_together_share_a_commit():
    valve = Valve()
    async with assembled(Parcels(valve)) as gateway:
        await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(20)))
        async with gateway.working():
            await eventually(lambda: len(valve.entered) == 20)
            valve.open.set()
            for number in range(20):
                await gateway.until(f"p{number}", Status.PROCESSED)

        assert gateway.store.calls["settle"] <= 2


async def test_a_batch_handler_gets_its_jobs_together():
    async def deliver_all(jobs):
        return [deliver(job) for job in jobs]

    async with assembled(BatchedParcels(deliver_all)) as gateway:
        await asyncio.gather(*(gateway.accept(f"p{n}") for n in range(25)))
        async with gateway.working(concurrency=50):
            for number in range(25):
                await gateway.until(f"p{number}", Status.PROCESSED)

        assert sorted(map(len, gateway.workload.batches)) == [5, 10, 10]


async def test_a_batch_that_fails_as_a_whole_is_no_shared_fate():
    async def not_with_bad(jobs):
        if any(job.data.id == "bad" for job in jobs):
            message = "the whole batch"
            raise RuntimeError(message)
        return [deliver(job) for job in jobs]

    async with assembled(BatchedParcels(not_with_bad)) as gateway:
        await asyncio.gather(*(gateway.accept(name) for name in ("a", "bad", "b")))
        async with gateway.working():
            await gateway.until("a", Status.PROCESSED)
            await gateway.until("b", Status.PROCESSED)
            assert (await gateway.until("bad", Status.FAILED)).last_error_code == "UNCLASSIFIED"


# --- a workload's own code --------------------------------------------------------------------------------------------


class Unreliable(Parcels):
    """Every hook that a workload may write raises."""

    def _fail(self, *arguments, **options):
        message = "a bug in the workload"
        raise ZeroDivisionError(message)

    classify = exhausted = at_attempt = dead_letter_payload = expired = _fail
    accepted = enqueued = retrying = released = dead_lettered = letter_body = _fail


async def test_hooks_that_raise_do_not_keep_a_job_from_its_end():
    async with assembled(Unreliable()) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            for attempt in (1, 2):

                async def failed(attempt=attempt):
                    entry = await gateway.entry("p")
                    return entry.status is Status.FAILED and entry.attempt_count == attempt

                await eventually(failed)
                gateway.clock.advance(RETRY_AFTER)
            entry = await gateway.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: gateway.queued("parcels-dead"))

        assert outcomes(entry) == [("failed", "UNCLASSIFIED")] * 3


async def test_a_policy_that_raises_is_replaced_by_the_default_one():
    class NoPolicy:
        max_attempts = 3

        def delay(self, attempt, random):
            raise ZeroDivisionError

    workload = Parcels(lambda job: Retry("BUSY"))
    workload.retry = NoPolicy()
    async with assembled(workload) as gateway:
        await gateway.accept("p")
        async with gateway.working():
            entry = await gateway.until("p", Status.FAILED)

        assert timedelta(seconds=1) <= entry.not_before - gateway.clock.now() <= timedelta(seconds=1.2)


async def test_with_one_slot_each_job_sees_what_the_job_before_it_has_written():
    class Counting(Parcels):
        concurrency = 1

        async def handle(self, job, context):
            found = await context.get("parcel_places", "total")
            total = (found["total"] if found else 0) + 1
            return Done([Upsert("parcel_places", "total", {"total": total})])

    async def take_time(settlements):
        await asyncio.sleep(0.01)

    async with assembled(Counting()) as gateway:
        gateway.store.before("settle", take_time)
        for number in range(20):
            await gateway.accept(f"p{number}")
        async with gateway.working():
            await eventually(lambda: _total(gateway, 20))


async def _total(gateway, wanted):
    return (await gateway.store.get("parcel_places", "total") or {}).get("total") == wanted
