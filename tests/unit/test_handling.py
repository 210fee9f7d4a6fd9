"""Running handlers: no exception escapes, and one job of a batch never fails another."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Done, Expired, Failure, Job, PermanentError, Reason, Reject, Retry, Snooze, ThrottledError
from holdfast.contracts.ledger import Claimed
from holdfast.engine.context import JobContext, SharedContext
from holdfast.engine.entries import REFUSED
from holdfast.engine.handling import handle, handle_batch, job_of
from holdfast.wiring import system_ambient
from tests.support.clock import START
from tests.support.workloads import BatchedParcels, Parcel, Parcels, running

OUTCOMES = [
    *(Done(), Retry("BUSY"), Snooze(timedelta(seconds=1)), Reject("GONE"), Expired()),
    Failure("BUSY", "away", retry=True),
]


class RecordCollection:
    """The part of a store that handlers may read."""

    async def get_many(self, wanted):
        return [{"collection": collection, "key": key} for collection, key in wanted]


SHARED = SharedContext("parcels", RecordCollection(), None, system_ambient(), "worker-1", timedelta(seconds=30))


def a_job(name="p", attempt=1) -> Job[Parcel]:
    return Job(f"parcel:{name}", name, Parcel(id=name), attempt, 1, START)


def context_of(job=None):
    return JobContext(SHARED, running(), job or a_job())


def contexts_of(*names):
    return [context_of(a_job(name)) for name in names]


def retried(code, message) -> Failure:
    return Failure(code, message, retry=True)


def raising(error):
    def script(job):
        raise error

    return Parcels(script)


async def forever(job):
    await asyncio.Event().wait()


# --- one job --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
async def test_what_a_handler_returns_is_the_outcome(outcome):
    assert await handle(Parcels(lambda job: outcome), context_of()) is outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermanentError("GONE", "never"), Failure("GONE", "never", retry=False)),
        (ThrottledError(retry_after=timedelta(seconds=9)), None),
        (
            ConnectionRefusedError(111, "Connection refused"),
            retried("ECONNREFUSED", "ConnectionRefusedError: the other side refused the connection (ECONNREFUSED)."),
        ),
        (ValueError("odd"), retried("UNCLASSIFIED", "ValueError: odd")),
        (SystemExit(1), retried("UNCLASSIFIED", "SystemExit: 1")),
        (TimeoutError(), retried("TIMEOUT", "The handler did not finish in time.")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_handler_raises_becomes_an_outcome(error, outcome):
    found = await handle(raising(error), context_of())

    if outcome is None:
        assert (found.code, found.after) == ("THROTTLED", timedelta(seconds=9))
    else:
        assert found == outcome


@pytest.mark.parametrize("nonsense", [None, True, "done", Done, {"status": "ok"}, Reason("A", "a")])
async def test_a_handler_that_returns_something_else_is_retried_and_told_so(nonsense):
    outcome = await handle(Parcels(lambda job: nonsense), context_of())

    assert (outcome.retry, outcome.code) == (True, "BAD_OUTCOME")
    assert type(nonsense).__name__ in outcome.message


async def test_a_handler_that_does_not_end_is_ended():
    workload = Parcels(forever)
    workload.timeout = timedelta(milliseconds=1)

    outcome = await handle(workload, context_of())

    assert (outcome.retry, outcome.code) == (True, "TIMEOUT")


async def test_a_handler_whose_own_work_was_cancelled_has_failed():
    async def cancels_itself(job):
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    outcome = await handle(Parcels(cancels_itself), context_of())

    assert (outcome.retry, outcome.code) == (True, "UNCLASSIFIED")


async def test_a_worker_that_cancels_its_handler_means_it():
    entered = asyncio.Event()

    async def waits(job):
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(handle(Parcels(waits), context_of()))
    await entered.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_handler_can_read_documents_and_know_its_worker():
    assert context_of().worker == "worker-1"
    assert await context_of().get("parcel_places", "p") == {"collection": "parcel_places", "key": "p"}


# --- many jobs ------------------------------------------------------------------------------------------------


async def test_a_batch_gets_one_outcome_for_each_job_in_order():
    async def all_of_them(jobs):
        return [Reject(job.data.id) for job in jobs]

    outcomes = await handle_batch(BatchedParcels(all_of_them), contexts_of(*"abc"))

    assert [outcome.code for outcome in outcomes] == ["a", "b", "c"]


@pytest.mark.parametrize("trouble", [ValueError("odd"), SystemExit(2), asyncio.CancelledError(), TimeoutError()])
async def test_when_a_batch_fails_as_a_whole_each_job_runs_alone(trouble):
    async def not_with_b(jobs):
        if any(job.data.id == "b" for job in jobs):
            raise trouble
        return [Done() for _ in jobs]

    workload = BatchedParcels(not_with_b)
    outcomes = await handle_batch(workload, contexts_of(*"abc"))

    assert [type(outcome) for outcome in outcomes] == [Done, Failure, Done]
    assert outcomes[1].retry
    assert workload.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]


@pytest.mark.parametrize("returned", [[], [Done()], [Done()] * 3, None, 7])
async def test_a_batch_that_does_not_answer_for_every_job_is_not_believed(returned):
    async def miscounts(jobs):
        return returned if len(jobs) > 1 else [Done()]

    outcomes = await handle_batch(BatchedParcels(miscounts), contexts_of("a", "b"))

    assert outcomes == [Done(), Done()]


async def test_a_single_job_that_gets_no_outcome_is_rejected():
    async def nothing(jobs):
        return []

    (outcome,) = await handle_batch(BatchedParcels(nothing), [context_of()])

    assert (outcome.retry, outcome.code) == (False, "BAD_OUTCOME")


async def test_nonsense_in_a_batch_is_one_jobs_nonsense():
    async def nonsense_for_b(jobs):
        return [None if job.data.id == "b" else Done() for job in jobs]

    outcomes = await handle_batch(BatchedParcels(nonsense_for_b), contexts_of("a", "b"))

    assert (type(outcomes[0]), outcomes[1].code) == (Done, "BAD_OUTCOME")


async def test_a_batch_that_does_not_end_is_ended():
    async def hangs_on_b(jobs):
        if any(job.data.id == "b" for job in jobs):
            await asyncio.Event().wait()
        return [Done() for _ in jobs]

    workload = BatchedParcels(hangs_on_b)
    workload.timeout = timedelta(milliseconds=5)

    outcomes = await handle_batch(workload, contexts_of("a", "b"))

    assert (type(outcomes[0]), outcomes[1].code) == (Done, "TIMEOUT")


# --- the job that the ledger holds ----------------------------------------------------------------------------


def a_claim(body='{"id": "p"}', labels=None, attempt=1) -> Claimed:
    return Claimed("p", "parcel:p", 2, 7, attempt, body, labels or {}, START, None)


def test_a_job_is_what_the_ledger_holds_with_the_attempts_number_in_it():
    job = job_of(Parcels(), a_claim(labels={"place": "x"}, attempt=3))

    assert (job.key, job.job_id, job.generation, job.attempt) == ("parcel:p", "p", 2, 3)
    assert (job.data, job.received_at, job.labels) == (Parcel(id="p", attempt=3), START, {"place": "x"})


@pytest.mark.parametrize("body", ["", "not json", "[]", '{"id": 7}', '{"id": "half \\ud800"}', "[" * 5000])
def test_a_body_that_breaks_the_contract_is_rejected_for_good(body):
    outcome = job_of(Parcels(), a_claim(body))

    assert (type(outcome), outcome.code) == (Reject, "VALIDATION_FAILED")


@pytest.mark.parametrize(
    ("why", "code"),
    [("IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_CONFLICT"), ("UNREADABLE", "VALIDATION_FAILED")],
)
def test_a_job_that_was_refused_at_adoption_is_never_handled(why, code):
    outcome = job_of(Parcels(), a_claim(labels={REFUSED: why}))

    assert (type(outcome), outcome.code) == (Reject, code)
