"""Functions that are jobs: what the decorator makes of them, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pydantic import BaseModel, ValidationError

from holdfast import (
    App,
    ConfigurationError,
    Context,
    Done,
    ExponentialBackoff,
    InvalidContent,
    Job,
    JobFunction,
    ListedDelays,
    NewerVersion,
    Outcome,
    PermanentError,
    RateLimit,
    Reject,
    Retry,
    Snooze,
    SyncContext,
    Tick,
    Workload,
)
from holdfast.embedding.steps import data_of
from tests.support.clock import START


class Invoice(BaseModel):
    number: str
    customer: str = "ACME"
    cents: int = 1


class Pdf(BaseModel):
    pages: int


@dataclass
class Sizes:
    pages: int
    bytes: int


def job(data, attempt=1):
    return Job(data.number, data.number, data, attempt, 1, START)


async def handled(function, data=None, context=None):
    return await function.workload.handle(job(data or Invoice(number="7")), context)


# --- what the decorator makes --------------------------------------------------------------------------------------


def test_a_function_becomes_a_workload_with_defaults():
    app = App()

    @app.job(key="number")
    async def issue_invoice(invoice: Invoice, ctx: Context) -> Pdf:
        return Pdf(pages=1)

    workload = issue_invoice.workload
    assert isinstance(issue_invoice, JobFunction)
    assert app.workloads == (workload,)
    assert (workload.name, workload.queue, workload.dead_letter_queue) == (
        "issue_invoice",
        "issue_invoice",
        "issue_invoice-dlq",
    )
    assert workload.contract is Invoice
    assert workload.key(Invoice(number="7")) == "7"
    assert workload.retry == ExponentialBackoff()
    assert workload.timeout == Workload.timeout
    assert (workload.ttl, workload.rate_limit, workload.concurrency) == (None, None, None)
    assert workload.stoppable
    assert workload.labels(Invoice(number="7")) == {}
    assert workload.fairness_key(Invoice(number="7")) is None


def test_every_option_reaches_the_workload():
    app = App()

    @app.job(
        key=lambda invoice: f"invoice-{invoice.number}",
        name="order-sync",
        attempts=4,
        backoff=["1s", timedelta(seconds=5)],
        timeout="2m",
        ttl="24h",
        queue="orders",
        rate="5/s",
        fairness_key="customer",
        concurrency=3,
        labels=("customer",),
        retention="7d",
        letter_retention="10d",
    )
    async def sync(invoice: Invoice) -> None: ...

    workload = sync.workload
    assert (sync.name, workload.queue, workload.dead_letter_queue) == ("order-sync", "orders", "orders-dlq")
    assert workload.key(Invoice(number="7")) == "invoice-7"
    assert workload.retry == ListedDelays((timedelta(seconds=1), timedelta(seconds=5)), 4)
    assert (workload.timeout, workload.ttl) == (timedelta(minutes=2), timedelta(days=1))
    assert workload.rate_limit == RateLimit(5, timedelta(seconds=1))
    assert workload.fairness_key(Invoice(number="7")) == "ACME"
    assert workload.concurrency == 3
    assert workload.labels(Invoice(number="7")) == {"customer": "ACME"}
    assert "customer" in workload.indexed_labels
    assert "companyId" in workload.indexed_labels
    assert (workload.retention, workload.letter_retention) == (timedelta(days=7), timedelta(days=10))


def test_a_policy_keeps_its_attempts_unless_they_are_given():
    app = App()
    policy = ExponentialBackoff(max_attempts=9, base=timedelta(seconds=3))

    @app.job(key="number", backoff=policy)
    async def one(invoice: Invoice) -> None: ...

    @app.job(key="number", backoff=policy, attempts=2)
    async def two(invoice: Invoice) -> None: ...

    assert one.workload.retry.max_attempts == 9
    assert two.workload.retry == ExponentialBackoff(max_attempts=2, base=timedelta(seconds=3))


async def test_the_function_itself_can_be_called():
    app = App()

    @app.job(key="number")
    async def double(invoice: Invoice) -> int:
        return invoice.cents * 2

    assert await double(Invoice(number="7", cents=21)) == 42
    assert double.__name__ == "double"


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (Pdf, Pdf(pages=3), {"pages": 3}),
        (Sizes, Sizes(1, 2), {"pages": 1, "bytes": 2}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[str, int], {"value": 1}, {"value": {"value": 1}}),
        (int, 5, {"value": 5}),
        (list[Pdf], [Pdf(pages=1)], {"value": [{"pages": 1}]}),
        (Pdf | None, None, None),
        (Pdf | Snooze, Pdf(pages=3), {"pages": 3}),
        (Pdf | int | Outcome, 5, {"value": 5}),
    ],
    ids=str,
)
async def test_a_result_is_stored_as_an_object_and_comes_back_in_its_type(kind, value, stored):
    async def work(invoice: Invoice):
        return value

    work.__annotations__["return"] = kind
    made = App().job(key="number")(work)

    outcome = await handled(made)

    assert outcome == Done(result=stored)
    assert made.result_of(outcome.result) == value


async def test_a_result_that_does_not_fit_its_annotation_is_no_result():
    @App().job(key="number")
    async def work(invoice: Invoice) -> Pdf:
        return "three"  # type: ignore[return-value]

    with pytest.raises(PermanentError) as raised:
        await handled(work)

    assert raised.value.code == "BAD_RESULT"


async def test_an_outcome_is_an_outcome():
    @App().job(key="number")
    async def work(invoice: Invoice) -> Outcome:
        return Snooze(timedelta(seconds=3))

    assert await handled(work) == Snooze(timedelta(seconds=3))


def test_the_waits_of_outcomes_are_durations_as_all_others():
    assert Snooze("1h", "closed") == Snooze(timedelta(hours=1), "closed") == Snooze(3600, "closed")
    assert Retry("BUSY", "later", after="5s") == Retry("BUSY", "later", after=timedelta(seconds=5))
    assert Retry("BUSY", after=timedelta(seconds=-1)).after == timedelta(seconds=-1)
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        Snooze("soon")


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_a_plain_function_runs_in_a_thread():
    @App().job(key="number")
    def work(invoice: Invoice, ctx: SyncContext) -> str:
        return threading.current_thread().name

    outcome = await handled(work, context=None)

    assert outcome.result["value"] != threading.current_thread().name


async def test_what_a_plain_function_raises_is_raised():
    @App().job(key="number")
    def work(invoice: Invoice) -> None:
        raise Reject("GONE", "There is no such customer.")  # noqa: EM101 - a code

    with pytest.raises(Reject):
        await handled(work)


async def test_threads_have_a_cap():
    app = App()
    entered, let_go = threading.Semaphore(0), threading.Event()

    @app.job(key="number", concurrency=2)
    def work(invoice: Invoice) -> None:
        entered.release()
        let_go.wait(10)

    assert work.workload.concurrency == 2
    tasks = [asyncio.create_task(handled(work)) for _ in range(3)]
    try:
        for _ in range(2):
            assert await asyncio.to_thread(entered.acquire, timeout=10)
        assert not await asyncio.to_thread(entered.acquire, timeout=0.2)
    finally:
        let_go.set()
    assert await asyncio.gather(*tasks) == [Done()] * 3


async def test_a_function_that_runs_on_after_its_end_learns_of_it():
    seen = threading.Event()
    started = threading.Event()

    class Living:
        cancelled = False

    @App().job(key="number")
    def work(invoice: Invoice, ctx: SyncContext) -> None:
        started.set()
        while not ctx.cancelled:
            pass
        seen.set()

    task = asyncio.create_task(handled(work, context=Living()))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await asyncio.to_thread(seen.wait, 10)


# --- versions --------------------------------------------------------------------------------------------------------


def versioned(version, upcast):
    @App().job(key="number", version=version, upcast=upcast)
    async def work(invoice: Invoice) -> None: ...

    return work.workload


def test_the_first_version_is_not_written():
    assert versioned(1, {}).write(Invoice(number="7")) == Invoice(number="7").model_dump_json()


def test_a_body_carries_its_version_and_is_read_again():
    workload = versioned(2, {1: dict})

    body = workload.write(Invoice(number="7"))

    assert body.startswith('{"$version":2,"number":"7"')
    assert workload.read(body) == workload.read(body.encode()) == Invoice(number="7")


def test_older_bodies_are_brought_to_this_version_step_by_step():
    workload = versioned(
        3,
        {
            1: lambda old: {"number": old["no"], "amount": old["amount"]},
            2: lambda old: {"number": old["number"], "cents": old["amount"] * 100},
        },
    )

    assert workload.read('{"no": "7", "amount": 2}') == Invoice(number="7", cents=200)
    assert workload.read('{"$version": 2, "number": "7", "amount": 3}') == Invoice(number="7", cents=300)


@pytest.mark.parametrize("version", [1, 3])
def test_a_newer_body_is_not_read(version):
    workload = versioned(version, dict.fromkeys(range(1, version), dict))

    with pytest.raises(NewerVersion, match=f"version 4; this program knows version {version}"):
        workload.read('{"$version": 4, "number": "7"}')


@pytest.mark.parametrize("version", ["0", "-1", '"2"', "2.0", "true", "null"])
def test_a_version_that_is_none_breaks_the_contract(version):
    with pytest.raises(ValidationError, match="whole number"):
        versioned(2, {1: dict}).read(f'{{"$version": {version}, "number": "7"}}')


@pytest.mark.parametrize("body", ["", "[]", "7", "{", '{"$version": 2'])
def test_a_body_that_is_no_object_breaks_the_contract(body):
    with pytest.raises(ValidationError):
        versioned(2, {1: dict}).read(body)


def test_a_mapping_that_names_its_version_is_brought_to_this_version():
    workload = versioned(2, {1: lambda old: {"number": old["no"]}})

    assert data_of(workload, {"$version": 1, "no": "7"}) == Invoice(number="7")
    assert data_of(workload, {"number": "7"}) == Invoice(number="7")
    with pytest.raises(InvalidContent, match="payload version 3"):
        data_of(workload, {"$version": 3, "number": "7"})


# --- refusals --------------------------------------------------------------------------------------------------------


def of_a_generator(invoice: Invoice):
    yield 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key": "nummer"}, "key='nummer' is no field of Invoice. Its fields: number, customer, cents."),
        ({"key": "number", "fairness_key": "shop"}, "fairness_key='shop' is no field"),
        ({"key": "number", "labels": ("shop",)}, "labels='shop' is no field"),
        ({"key": "number", "timeout": "soon"}, "'soon' is not a duration"),
        ({"key": "number", "ttl": -1}, "it is negative"),
        ({"key": "number", "rate": "5 per second"}, "is not a rate"),
        ({"key": "number", "backoff": "1s"}, "write backoff=\\['1s'\\]"),
        ({"key": "number", "backoff": []}, "at least one delay"),
        ({"key": "number", "attempts": 0}, "attempts=0 must be a whole number from 1"),
        ({"key": "number", "concurrency": 1.5}, "concurrency=1.5 must be"),
        ({"key": "number", "name": "a b"}, "cannot be the name of a workload"),
        ({"key": "number", "version": 3, "upcast": {1: dict}}, "needs an upcast from version 2"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_a_sentence(options, sentence):
    async def work(invoice: Invoice) -> None: ...

    with pytest.raises(ConfigurationError, match=sentence):
        App().job(**options)(work)


def test_a_function_that_takes_no_model_is_refused():
    def of_nothing() -> None: ...

    def of_text(text: str) -> None: ...

    def of_anything(data) -> None: ...

    def of_three(invoice: Invoice, ctx: Context, more: int) -> None: ...

    for function in (of_nothing, of_text, of_anything, of_three):
        with pytest.raises(ConfigurationError, match="a job is a function of one pydantic model"):
            App().job(key="number")(function)
    with pytest.raises(ConfigurationError, match="cannot be a generator"):
        App().job(key="number")(of_a_generator)


def test_names_and_queues_are_used_once():
    app = App()

    @app.job(key="number")
    async def work(invoice: Invoice) -> None: ...

    with pytest.raises(ConfigurationError, match="work is used twice"):
        app.job(key="number")(work.__wrapped__)
    with pytest.raises(ConfigurationError, match="Each queue may be used once; work, work-dlq"):
        app.job(key="number", name="other", queue="work")(work.__wrapped__)


def test_an_app_takes_over_another():
    other, app = App(), App()

    @other.job(key="number")
    async def work(invoice: Invoice) -> None: ...

    app.include(other)
    app.include(other)

    assert app.workloads == (work.workload,)


# --- schedules -------------------------------------------------------------------------------------------------------


def test_a_schedule_is_a_job_of_ticks():
    app = App()

    @app.schedule("0 7 * * 1-5", timezone="America/Sao_Paulo", catch_up="all", jitter="1m")
    async def remind(tick: Tick, ctx: Context) -> None: ...

    schedule = remind.workload.schedule
    assert (schedule.name, schedule.cron, schedule.timezone) == ("remind", "0 7 * * 1-5", "America/Sao_Paulo")
    assert (schedule.catch_up, schedule.jitter) == ("all", timedelta(minutes=1))
    tick = Tick(schedule="remind", at=START)
    assert remind.workload.key(tick) == tick.key


def test_a_schedule_of_another_model_is_refused():
    with pytest.raises(ConfigurationError, match="a schedule is a function of a Tick"):

        @App().schedule(every="1h")
        async def remind(invoice: Invoice) -> None: ...
