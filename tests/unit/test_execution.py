"""Execution: the life of a batch of deliveries, with everything that can happen to it on the way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Done, Expired, PermanentError, Reject, Retry, Snooze, ThrottledError, Upsert
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.queues import QueueJob
from holdfast.telemetry import attach, detach, events
from tests.support.stage import GRACE, LEASE, a_stage
from tests.support.waiting import eventually
from tests.support.workloads import RETRY_AFTER, BatchedParcels, Parcel, Parcels, deliver

AT_ONCE = timedelta(0)
SHORT_LEASE = timedelta(milliseconds=60)


class Valve:
    """A handler that waits until its jobs are let through."""

    def __init__(self, outcome=deliver) -> None:
        self.open = asyncio.Event()
        self.entered: list[str] = []
        self.cancelled: list[str] = []
        self._outcome = outcome

    async def __call__(self, job):
        self.entered.append(job.data.id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job.data.id)
            raise
        return self._outcome(job)


@pytest.fixture
def seen():
    """Every event that was emitted."""
    emitted: list[tuple[str, dict]] = []

    def exporter(event, fields):
        emitted.append((event, fields))

    attach(exporter)
    yield emitted
    detach(exporter)


def outcomes(entry):
    return [(attempt.outcome.value, attempt.error_code) for attempt in entry.attempts]


# --- what an outcome leads to ---------------------------------------------------------------------------------


async def test_a_job_is_taken_handled_settled_and_acknowledged():
    async with a_stage() as stage:
        await stage.accept("p", place="home")
        async with stage.working():
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert entry.attempts[0].worker == "worker-1"
        assert entry.result == {"at": "home"}
        assert (await stage.store.get("parcel_places", "p"))["place"] == "home"
        assert await stage.broker.depth("parcels-main") == await stage.broker.depth("parcels-dead")
        (job,) = stage.workload.handled
        assert (job.key, job.job_id, job.attempt, job.generation) == ("parcel:p", "parcel.p", 1, 1)


async def test_the_log_tells_each_attempt_once(seen):
    async with a_stage() as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)

    (told,) = [fields for event, fields in seen if event == events.ATTEMPT_SETTLED]
    assert (told["workload"], told["key"], told["attempt"], told["outcome"]) == ("parcels", "parcel:p", 1, "processed")
    assert told["trace_id"] == "trace-p"
    assert told["duration_ms"] >= 0


async def test_a_transient_failure_is_tried_again_after_its_wait():
    async with a_stage(Parcels(lambda job: Retry("BUSY", "later") if job.attempt == 1 else deliver(job))) as stage:
        await stage.accept("p")
        async with stage.working():
            failed = await stage.until("p", Status.FAILED)
            assert failed.not_before - stage.clock.now() == RETRY_AFTER
            assert (failed.last_error_code, failed.last_error_message) == ("BUSY", "later")
            stage.clock.advance(RETRY_AFTER)
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("failed", "BUSY"), ("succeeded", None)]
        assert [(job.attempt, job.data.attempt) for job in stage.workload.handled] == [(1, 1), (2, 2)]


async def test_the_queue_carries_the_number_of_the_next_attempt():
    async with a_stage(Parcels(lambda job: Retry("BUSY"))) as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.FAILED)
        stage.clock.advance(RETRY_AFTER)

        ((_, data),) = await stage.queued("parcels-main")

        assert Parcel.model_validate_json(data).attempt == 2
        assert Parcel.model_validate_json((await stage.entry("p")).body).attempt == 1


async def test_the_last_attempt_that_fails_becomes_a_dead_letter(seen):
    async with a_stage(Parcels(lambda job: Retry("BUSY", "later"))) as stage:
        await stage.accept("p")
        async with stage.working():
            for attempt in (1, 2):
                await eventually(lambda attempt=attempt: len(stage.workload.handled) == attempt)
                await stage.until("p", Status.FAILED)
                stage.clock.advance(RETRY_AFTER)
            entry = await stage.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: _ready(stage, "parcels-dead"))

        assert outcomes(entry) == [("failed", "BUSY")] * 3
        (letter,) = await stage.letters()
        assert (letter.reason_code, letter.attempt_count, letter.attempts) == ("BUSY_EXHAUSTED", 3, entry.attempts)
        assert [job_id for job_id, _ in await stage.queued("parcels-dead")] == [letter.id]
        assert await stage.queued("parcels-main") == []
    (told,) = [fields for event, fields in seen if event == events.JOB_DEAD_LETTERED]
    assert (told["letter"], told["reason_code"]) == (letter.id, "BUSY_EXHAUSTED")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (lambda job: Reject("HTTP_404", "gone"), "HTTP_404"),
        (lambda job: (_ for _ in ()).throw(PermanentError("NO_SUCH_PLACE")), "NO_SUCH_PLACE"),
    ],
)
async def test_a_permanent_failure_is_buried_at_once(script, code):
    async with a_stage(Parcels(script)) as stage:
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", code)]
        assert [letter.reason_code for letter in await stage.letters()] == [code]


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

    async with a_stage(Parcels(script)) as stage:
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.FAILED)

        assert entry.not_before - stage.clock.now() == wait
        assert entry.last_error_code == getattr(error, "code", "UNCLASSIFIED")


@pytest.mark.parametrize("trouble", [SystemExit(1), asyncio.CancelledError(), None])
async def test_no_handler_can_end_its_worker(trouble):
    def script(job):
        if job.data.id == "bad":
            if trouble is None:
                return None
            raise trouble
        return deliver(job)

    async with a_stage(Parcels(script)) as stage:
        await stage.accept("bad")
        await stage.accept("good")
        async with stage.working():
            await stage.until("good", Status.PROCESSED)
            entry = await stage.until("bad", Status.FAILED)

        assert entry.last_error_code in {"UNCLASSIFIED", "BAD_OUTCOME"}


async def test_a_handler_that_takes_too_long_is_ended_and_retried():
    workload = Parcels(Valve())
    workload.timeout = timedelta(milliseconds=10)
    async with a_stage(workload) as stage:
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.FAILED)

        assert entry.last_error_code == "TIMEOUT"
        assert workload.script.cancelled == ["p"]


async def test_an_error_text_that_no_store_can_keep_costs_the_job_nothing_more():
    def script(job):
        message = "cannot open caf\udce9\0"
        raise FileNotFoundError(message)

    async with a_stage(Parcels(script)) as stage:
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.FAILED)

        assert "cannot open caf" in entry.last_error_message


async def test_a_snoozed_job_costs_no_attempt():
    async with a_stage(Parcels(lambda job: Snooze(timedelta(seconds=60)))) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: len(stage.workload.handled) == 1)
            entry = await stage.until("p", Status.RECEIVED)
            assert (entry.attempts, entry.not_before - stage.clock.now()) == ((), timedelta(seconds=60))
            stage.workload.script = deliver
            stage.clock.advance(timedelta(seconds=60))
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert [job.attempt for job in stage.workload.handled] == [1, 1]


async def test_a_handler_may_say_that_a_job_has_expired():
    effects = [Upsert("parcel_places", "p", {"place": "returned"})]
    async with a_stage(Parcels(lambda job: Expired(effects))) as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.EXPIRED)

        assert (await stage.store.get("parcel_places", "p"))["place"] == "returned"


async def test_a_job_past_its_deadline_is_not_handled():
    workload = Parcels()
    workload.life = timedelta(seconds=60)
    async with a_stage(workload) as stage:
        await stage.accept("p")
        stage.clock.advance(timedelta(seconds=60))
        async with stage.working():
            entry = await stage.until("p", Status.EXPIRED)

        assert (entry.attempts, workload.handled) == ((), [])
        assert (await stage.store.get("parcel_places", "p"))["place"] == "lost"


async def test_a_handler_reads_what_other_jobs_have_written():
    found = []

    class Reader(Parcels):
        async def handle(self, job, context):
            found.append((context.worker, await context.get("parcel_places", "p")))
            return deliver(job)

    async with a_stage(Reader()) as stage:
        await stage.accept("p", place="home")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)
            await stage.accept("q")
            await stage.until("q", Status.PROCESSED)

    assert found[0] == ("worker-1", None)
    assert found[1][1]["place"] == "home"


# --- neighbours -----------------------------------------------------------------------------------------------


async def test_a_slow_job_does_not_hold_its_batch():
    valve = Valve()
    async with a_stage(Parcels(lambda job: valve(job) if job.data.id == "slow" else deliver(job))) as stage:
        await asyncio.gather(stage.accept("slow"), *(stage.accept(f"p{n}") for n in range(30)))
        async with stage.working(concurrency=40):
            for number in range(30):
                await stage.until(f"p{number}", Status.PROCESSED)
            assert await stage.status("slow") is Status.PROCESSING
            await stage.accept("later")
            await stage.until("later", Status.PROCESSED)
            valve.open.set()
            await stage.until("slow", Status.PROCESSED)


async def test_no_more_jobs_are_in_work_than_there_are_slots():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        for number in range(5):
            await stage.accept(f"p{number}")
        async with stage.working(concurrency=2) as execution:
            await eventually(lambda: len(valve.entered) == 2)
            depth = await stage.broker.depth("parcels-main")
            assert (execution.in_flight, depth.ready, depth.active) == (2, 3, 2)
            valve.open.set()
            for number in range(5):
                await stage.until(f"p{number}", Status.PROCESSED)


async def test_an_impossible_effect_buries_its_job_and_no_neighbour(seen):
    def script(job):
        if job.data.id == "bad":
            return Done([Upsert("no_such_collection", "x", {"a": 1})])
        return deliver(job)

    async with a_stage(Parcels(script)) as stage:
        await asyncio.gather(*(stage.accept(name) for name in ("a", "bad", "b")))
        async with stage.working():
            await stage.until("a", Status.PROCESSED)
            await stage.until("b", Status.PROCESSED)
            entry = await stage.until("bad", Status.DEAD_LETTERED)

        assert outcomes(entry) == [("failed", "EFFECT_REFUSED")]
        (letter,) = await stage.letters()
        assert letter.reason_code == "EFFECT_REFUSED"
        assert "no_such_collection" in letter.reason_message
    assert [fields["jobs"] for event, fields in seen if event == events.BATCH_SPLIT] == [3]


@pytest.mark.parametrize("result", [{"not": object()}, {"half": "\ud800"}])
async def test_a_result_that_cannot_be_kept_buries_its_job_and_no_neighbour(result):
    def script(job):
        return Done(result=result) if job.data.id == "bad" else deliver(job)

    async with a_stage(Parcels(script)) as stage:
        await asyncio.gather(*(stage.accept(name) for name in ("a", "bad", "b")))
        async with stage.working():
            await stage.until("a", Status.PROCESSED)
            await stage.until("b", Status.PROCESSED)
            await stage.until("bad", Status.DEAD_LETTERED)


async def test_jobs_that_finish_together_share_a_commit():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await asyncio.gather(*(stage.accept(f"p{n}") for n in range(20)))
        async with stage.working():
            await eventually(lambda: len(valve.entered) == 20)
            valve.open.set()
            for number in range(20):
                await stage.until(f"p{number}", Status.PROCESSED)

        assert stage.store.calls["settle"] <= 2


async def test_a_batch_handler_gets_its_jobs_together():
    async def deliver_all(jobs):
        return [deliver(job) for job in jobs]

    async with a_stage(BatchedParcels(deliver_all)) as stage:
        await asyncio.gather(*(stage.accept(f"p{n}") for n in range(25)))
        async with stage.working(concurrency=50):
            for number in range(25):
                await stage.until(f"p{number}", Status.PROCESSED)

        assert sorted(map(len, stage.workload.batches)) == [5, 10, 10]


async def test_a_batch_that_fails_as_a_whole_is_no_shared_fate():
    async def not_with_bad(jobs):
        if any(job.data.id == "bad" for job in jobs):
            message = "the whole batch"
            raise RuntimeError(message)
        return [deliver(job) for job in jobs]

    async with a_stage(BatchedParcels(not_with_bad)) as stage:
        await asyncio.gather(*(stage.accept(name) for name in ("a", "bad", "b")))
        async with stage.working():
            await stage.until("a", Status.PROCESSED)
            await stage.until("b", Status.PROCESSED)
            assert (await stage.until("bad", Status.FAILED)).last_error_code == "UNCLASSIFIED"


# --- a workload's own code ------------------------------------------------------------------------------------


class Unreliable(Parcels):
    """Every hook that a workload may write raises."""

    def _fail(self, *arguments):
        message = "a bug in the workload"
        raise ZeroDivisionError(message)

    classify = exhausted = at_attempt = dead_letter_payload = expired = _fail


async def test_hooks_that_raise_do_not_keep_a_job_from_its_end():
    async with a_stage(Unreliable()) as stage:
        await stage.accept("p")
        async with stage.working():
            for attempt in (1, 2):

                async def failed(attempt=attempt):
                    entry = await stage.entry("p")
                    return entry.status is Status.FAILED and entry.attempt_count == attempt

                await eventually(failed)
                stage.clock.advance(RETRY_AFTER)
            entry = await stage.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: stage.queued("parcels-dead"))

        assert outcomes(entry) == [("failed", "UNCLASSIFIED")] * 3


async def test_a_policy_that_raises_is_replaced_by_the_default_one():
    class NoPolicy:
        max_attempts = 3

        def delay(self, attempt, random):
            raise ZeroDivisionError

    workload = Parcels(lambda job: Retry("BUSY"))
    workload.retry = NoPolicy()
    async with a_stage(workload) as stage:
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.FAILED)

        assert timedelta(seconds=1) <= entry.not_before - stage.clock.now() <= timedelta(seconds=1.2)


# --- leases ---------------------------------------------------------------------------------------------------


async def test_a_long_handler_keeps_its_job():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working(lease=SHORT_LEASE):
            first = await stage.until("p", Status.PROCESSING)
            for _ in range(5):
                stage.clock.advance(SHORT_LEASE * 0.9)
                await eventually(lambda: _leased_anew(stage))
            await eventually(lambda: valve.entered)
            assert await stage.broker.recover("parcels-main") == 0
            valve.open.set()
            entry = await stage.until("p", Status.PROCESSED)

        assert (entry.fence, entry.attempt_count, valve.entered) == (first.fence, 1, ["p"])


async def _leased_anew(stage):
    entry = await stage.entry("p")
    return entry.lease_until == stage.clock.now() + SHORT_LEASE


async def test_a_worker_that_lost_its_job_stops_working_on_it(seen):
    valve, stolen = Valve(), asyncio.Event()

    async def not_before_the_theft(*arguments):
        await stolen.wait()

    async with a_stage(Parcels(valve)) as stage:
        stage.store.before("renew", not_before_the_theft)
        await stage.accept("p")
        async with stage.working(lease=SHORT_LEASE) as execution:
            await eventually(lambda: valve.entered)
            stage.clock.advance(SHORT_LEASE)
            await stage.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            stolen.set()
            await eventually(lambda: valve.cancelled == ["p"])
            await eventually(lambda: execution.in_flight == 0)

        entry = await stage.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
    assert events.ATTEMPT_STALE in [event for event, _ in seen]


async def test_a_result_that_comes_too_late_is_not_written(seen):
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            stage.clock.advance(LEASE)
            await stage.store.claim("parcels", ["parcel.p"], worker="thief", lease=LEASE, max_attempts=3)
            valve.open.set()
            await eventually(lambda: events.ATTEMPT_STALE in [event for event, _ in seen])

        entry = await stage.entry("p")
        assert outcomes(entry) == [("lost", "LOST"), ("running", None)]
        assert await stage.store.get("parcel_places", "p") is None


async def test_a_job_that_kills_every_worker_is_buried():
    async with a_stage() as stage:
        await stage.accept("p")
        for _ in range(3):
            await stage.store.claim("parcels", ["parcel.p"], worker="dies", lease=LEASE, max_attempts=3)
            stage.clock.advance(LEASE)
        async with stage.working():
            entry = await stage.until("p", Status.DEAD_LETTERED)

        assert [attempt.outcome for attempt in entry.attempts] == [AttemptOutcome.LOST] * 3
        (letter,) = await stage.letters()
        assert (letter.reason_code, letter.attempt_count) == ("WORKER_LOST", 3)
        assert stage.workload.handled == []


async def test_a_job_that_another_worker_holds_is_asked_for_again_later():
    async with a_stage() as stage:
        await stage.accept("p")
        await stage.store.claim("parcels", ["parcel.p"], worker="other", lease=LEASE, max_attempts=3)
        async with stage.working():
            await eventually(lambda: _delayed(stage, 1))
            assert stage.workload.handled == []
            stage.clock.advance(LEASE)
            entry = await stage.until("p", Status.PROCESSED)

        assert [attempt.worker for attempt in entry.attempts] == ["other", "worker-1"]


async def _ready(stage, queue):
    return (await stage.broker.depth(queue)).ready


async def _delayed(stage, number):
    return (await stage.broker.depth("parcels-main")).delayed == number


async def test_a_job_that_is_settled_already_leaves_the_queue():
    async with a_stage() as stage:
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)
            await stage.broker.publish("parcels-main", [QueueJob("parcel.p", '{"id": "p"}')])
            await eventually(lambda: _empty(stage))

        assert len(stage.workload.handled) == 1


async def _empty(stage):
    depth = await stage.broker.depth("parcels-main")
    return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)


# --- stopping -------------------------------------------------------------------------------------------------


async def test_a_stopping_worker_lets_its_jobs_finish():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            asyncio.get_running_loop().call_soon(valve.open.set)

        assert outcomes(await stage.entry("p")) == [("succeeded", None)]


async def test_a_stopping_worker_hands_back_what_does_not_finish_at_no_attempts_cost():
    valve = Valve()
    workload = Parcels(lambda job: valve(job) if job.attempt == 2 or job.data.id == "new" else Retry("BUSY"))
    async with a_stage(workload) as stage:
        await stage.accept("tried")
        async with stage.working(drain=AT_ONCE):
            await stage.until("tried", Status.FAILED)
            await stage.accept("new")
            stage.clock.advance(RETRY_AFTER)
            await eventually(lambda: sorted(valve.entered) == ["new", "tried"])

        assert sorted(valve.cancelled) == ["new", "tried"]
        new, tried = await stage.entry("new"), await stage.entry("tried")
        assert (new.status, new.attempts) == (Status.RECEIVED, ())
        assert (tried.status, outcomes(tried)) == (Status.FAILED, [("failed", "BUSY")])
        # The next worker gets them at once: no lease has to run out, no time to pass.
        workload.script = deliver
        async with stage.working():
            await stage.until("new", Status.PROCESSED)
            entry = await stage.until("tried", Status.PROCESSED)
        assert outcomes(entry) == [("failed", "BUSY"), ("succeeded", None)]


async def test_a_worker_whose_slots_are_all_taken_can_be_stopped():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        await stage.accept("waits")
        async with asyncio.timeout(20), stage.working(concurrency=1, drain=AT_ONCE):
            await eventually(lambda: valve.entered)

        assert [await stage.status(name) for name in ("p", "waits")] == [Status.RECEIVED] * 2


async def test_a_batch_that_does_not_finish_is_handed_back_whole():
    valve = Valve()

    async def hold(jobs):
        valve.entered.extend(job.data.id for job in jobs)
        await valve.open.wait()

    async with a_stage(BatchedParcels(hold)) as stage:
        await asyncio.gather(*(stage.accept(f"p{n}") for n in range(3)))
        async with stage.working(drain=AT_ONCE):
            await eventually(lambda: len(valve.entered) == 3)

        for number in range(3):
            entry = await stage.entry(f"p{number}")
            assert (entry.status, entry.attempts) == (Status.RECEIVED, ())


async def test_a_handler_that_finishes_while_it_is_being_stopped_has_its_say_once():
    async def finishes_anyway(job):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            return deliver(job)

    entered = asyncio.Event()
    async with a_stage(Parcels(finishes_anyway)) as stage:
        await stage.accept("p")
        async with stage.working(drain=AT_ONCE):
            await entered.wait()

        assert outcomes(await stage.entry("p")) == [("succeeded", None)]
        assert stage.store.calls["settle"] == 1


async def test_a_store_that_is_away_does_not_keep_a_worker_from_stopping(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._LAST_WAIT", timedelta(milliseconds=50))
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with asyncio.timeout(20), stage.working(drain=AT_ONCE):
            await eventually(lambda: valve.entered)
            stage.store.break_down(StoreUnavailable(), "settle")

        stage.store.repair()
        assert await stage.status("p") is Status.PROCESSING  # its lease will run out


# --- outages --------------------------------------------------------------------------------------------------


async def test_a_store_outage_while_settling_is_survived():
    async with a_stage() as stage:
        stage.store.fail("settle", StoreUnavailable("disk full"), times=3)
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert len(stage.workload.handled) == 1


async def test_a_commit_whose_answer_was_lost_is_not_applied_twice():
    async with a_stage() as stage:
        real, told = stage.store.settle, []

        async def commits_and_fails(settlements):
            if not told:
                told.append(await real(settlements))
                raise StoreUnavailable
            return await real(settlements)

        stage.store.settle = commits_and_fails
        await stage.accept("p")
        async with stage.working():
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]
        assert (await stage.store.get("parcel_places", "p"))["place"] == "depot"


async def test_a_store_outage_while_claiming_costs_nothing(monkeypatch):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with a_stage() as stage:
        stage.store.fail("claim", StoreUnavailable(), times=2)
        await stage.accept("p")
        async with stage.working():
            for calls in (1, 2):
                await eventually(lambda calls=calls: stage.store.calls["claim"] == calls)
                await eventually(lambda: _delayed(stage, 1))
                stage.clock.advance(timedelta(seconds=1))
            entry = await stage.until("p", Status.PROCESSED)

        assert outcomes(entry) == [("succeeded", None)]


async def test_a_queue_outage_while_taking_is_survived(monkeypatch, seen):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with a_stage() as stage:
        stage.broker.fail("take", BrokerUnavailable("away"), times=3)
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)

    assert [fields["where"] for event, fields in seen if event == events.QUEUE_UNAVAILABLE] == ["worker"] * 3


async def test_a_queue_that_misses_the_acknowledgement_delivers_in_vain():
    async with a_stage() as stage:
        stage.broker.fail("settle", BrokerUnavailable())
        await stage.accept("p")
        async with stage.working():
            await stage.until("p", Status.PROCESSED)
            await eventually(lambda: stage.broker.calls["settle"] == 1)
            stage.clock.advance(LEASE)
            assert await stage.broker.recover("parcels-main") == 1
            await eventually(lambda: _empty(stage))

        assert outcomes(await stage.entry("p")) == [("succeeded", None)]
        assert len(stage.workload.handled) == 1


async def test_a_dead_letter_queue_that_is_away_gets_its_letter_later():
    async with a_stage(Parcels(lambda job: Reject("GONE"))) as stage:
        await stage.accept("p")
        stage.broker.fail("publish", BrokerUnavailable())
        async with stage.working():
            await stage.until("p", Status.DEAD_LETTERED)
            await eventually(lambda: stage.broker.calls["publish"] == 2)
        assert await stage.queued("parcels-dead") == []

        assert (await stage.upkeep.round()).letters_published == 1
        assert len(await stage.queued("parcels-dead")) == 1


@pytest.mark.parametrize("verb", ["take", "claim", "settle"])
async def test_a_bug_in_an_adapter_does_not_end_the_worker(monkeypatch, verb):
    monkeypatch.setattr("holdfast.engine.execution._BACK_OFF", timedelta(milliseconds=10))
    async with a_stage() as stage:
        port = stage.broker if verb == "take" else stage.store
        port.fail(verb, RuntimeError("a bug"), times=2 if verb == "settle" else 1)
        await stage.accept("first")
        async with stage.working():
            await eventually(lambda: port.calls[verb] >= 1)
            await stage.accept("p")
            await stage.until("p", Status.PROCESSED)


async def test_the_sweep_leaves_running_jobs_alone():
    valve = Valve()
    async with a_stage(Parcels(valve)) as stage:
        await stage.accept("p")
        async with stage.working():
            await eventually(lambda: valve.entered)
            stage.clock.advance(GRACE * 2)
            report = await stage.upkeep.round()
            assert (report.republished, report.recovered) == (0, 0)
            valve.open.set()
            await stage.until("p", Status.PROCESSED)
