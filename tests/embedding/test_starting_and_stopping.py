"""A Holdfast in one's own process starts, stops and fails as a whole, and leaves the process as it was."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import App, ConfigurationError, Holdfast, NotRunning, Status
from holdfast.config import Settings
from holdfast.engine.execution import Execution
from holdfast.telemetry import emit, events
from tests.embedding.work import QUICK, Invoice, Invoices, app_with
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path):
    """The arguments of ``Holdfast`` where the deployment does not matter."""
    return {"data": tmp_path / "data", "settings": QUICK}


def invoice(number: str) -> Invoice:
    return Invoice(number=number, cents=1)


async def in_work(workload, number):
    await eventually(lambda: number in workload.began)


# --- stopping ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_body_lets_a_job_in_work_finish(place):
    app, workload = app_with()
    async with Holdfast(app, **place) as hold:
        receipt = await hold.submit(workload, invoice("slow"))
        await in_work(workload, "slow")
        asyncio.get_running_loop().call_later(0.05, workload.gate.set)
    assert workload.finished == ["slow"]
    async with Holdfast(app, **place, worker=False) as hold:
        assert (await hold.job(receipt)).status is Status.PROCESSED


@pytest.mark.parametrize("how", ["end", "error", "cancellation"])
async def test_a_job_that_does_not_finish_is_released_and_costs_no_attempt(place, how):
    app, workload = app_with()
    settings = place.pop("settings") | {"worker_drain_timeout_ms": 50}
    receipts = []

    async def body() -> None:
        async with Holdfast(app, **place, settings=settings) as hold:
            receipts.append(await hold.submit(workload, invoice("slow")))
            await in_work(workload, "slow")
            if how == "error":
                raise LookupError
            if how == "cancellation":
                asyncio.current_task().cancel()
                await asyncio.sleep(60)

    if how == "end":
        await body()
    else:
        with pytest.raises(LookupError if how == "error" else asyncio.CancelledError):
            await asyncio.create_task(body())
    assert workload.finished == []
    async with Holdfast(app, **place, settings=settings, worker=False) as hold:
        entry = await hold.job(receipts[0])
        assert (entry.status, entry.attempt_count) == (Status.RECEIVED, 0)
    workload.gate.set()
    async with Holdfast(app, **place, settings=settings) as hold:
        assert await hold.result(receipts[0], timeout=60) == {"total": 1}


async def test_a_cancellation_during_the_drain_waits_for_it(place):
    app, workload = app_with()

    async def body() -> None:
        async with Holdfast(app, **place) as hold:
            await hold.submit(workload, invoice("slow"))
            await in_work(workload, "slow")

    task = asyncio.create_task(body())
    await in_work(workload, "slow")
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.02)
    assert not task.done()
    workload.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert workload.finished == ["slow"]


async def test_a_result_that_is_waited_for_during_the_stop_comes_or_is_refused(place):
    app, workload = app_with()
    settings = place.pop("settings") | {"worker_drain_timeout_ms": 300}
    async with Holdfast(app, **place, settings=settings) as hold:
        finishes = await hold.submit(workload, invoice("slow"))
        waits = await hold.submit(workload, invoice("later"), delay="1h")
        waiting = [asyncio.create_task(hold.result(each)) for each in (finishes, waits)]
        await in_work(workload, "slow")
        asyncio.get_running_loop().call_later(0.05, workload.gate.set)
    assert await waiting[0] == {"total": 1}
    with pytest.raises(NotRunning, match="has stopped"):
        await waiting[1]


async def test_a_job_in_work_may_submit_another_during_the_stop(place):
    app, gate = App(), asyncio.Event()
    began: list[str] = []

    @app.job(key="number")
    async def follow(invoice: Invoice) -> None:
        began.append(invoice.number)

    @app.job(key="number")
    async def lead(invoice: Invoice) -> str:
        began.append(invoice.number)
        await gate.wait()
        return (await hold.submit(follow, Invoice(number="2", cents=1), delay="1h")).key

    async with Holdfast(app, **place) as hold:
        receipt = await hold.submit(lead, invoice("1"))
        await eventually(lambda: began == ["1"])
        asyncio.get_running_loop().call_later(0.05, gate.set)
    async with Holdfast(app, **place, worker=False) as hold:
        assert await hold.result(receipt, timeout=0) == "2"
        assert (await hold.job((follow, "2"))).status is Status.RECEIVED


# --- failing ----------------------------------------------------------------------------------------------------------


async def test_a_worker_that_fails_is_noticed_by_every_call_and_by_the_end_of_the_body(file, monkeypatch, caplog):
    app, workload = app_with()
    fails = asyncio.Event()
    run = Execution.run

    async def failing(self, *arguments):
        async with asyncio.TaskGroup() as group:
            group.create_task(run(self, *arguments))
            await fails.wait()
            raise ZeroDivisionError(self._workload.name)

    monkeypatch.setattr(Execution, "run", failing)

    async def body() -> None:
        async with Holdfast(app, **file) as hold:
            receipt = await hold.submit(workload, invoice("later"), delay="1h")
            waiting = asyncio.create_task(hold.result(receipt))
            await asyncio.sleep(0)
            fails.set()
            with pytest.raises(NotRunning, match="worker of this Holdfast has failed") as refusal:
                await waiting
            assert refusal.value.__cause__ is not None
            with pytest.raises(NotRunning, match="worker of this Holdfast has failed"):
                await hold.submit(workload, invoice("2"))

    with pytest.raises(BaseExceptionGroup) as failure:  # one error for each workload of the process
        await body()
    assert failure.group_contains(ZeroDivisionError)
    assert [each.levelname for each in caplog.records if "worker.fault" in each.message] == ["WARNING"]


async def test_an_error_of_the_body_is_not_hidden_by_a_failed_worker(file, monkeypatch):
    app, _ = app_with()

    async def failing(self, stop, drain):
        await asyncio.sleep(0)
        raise ZeroDivisionError

    monkeypatch.setattr(Execution, "run", failing)

    async def body() -> None:
        async with Holdfast(app, **file) as hold:
            await eventually(lambda: not hold._running.open)
            raise LookupError

    with pytest.raises(LookupError):
        await body()


async def test_a_workload_that_cannot_start_stops_the_start(file):
    class Broken(Invoices):
        async def start(self) -> None:
            message = "no such pool"
            raise OSError(message)

    hold = Holdfast(App([Broken()]), **file)
    with pytest.raises(OSError, match="no such pool"):
        await hold.__aenter__()
    with pytest.raises(NotRunning):
        await hold.submit("invoices", {})


async def test_a_start_that_is_cancelled_leaves_nothing_behind(file):
    class Hangs(Invoices):
        async def start(self) -> None:
            self.began.append("start")
            await asyncio.Event().wait()

    app, workload = app_with(Hangs())
    before = asyncio.all_tasks()
    starting = asyncio.create_task(Holdfast(app, **file).__aenter__())
    await in_work(workload, "start")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert asyncio.all_tasks() == before


async def test_it_cannot_be_started_twice_at_a_time(file):
    app, _ = app_with()
    async with Holdfast(app, **file) as hold:
        with pytest.raises(RuntimeError, match="running already"):
            await hold.__aenter__()


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_the_settings_are_those_of_the_program(tmp_path, monkeypatch):
    app, workload = app_with()
    (tmp_path / "holdfast.toml").write_text('holdfast_data = "from-file"\nworker_concurrency = 7\n')
    async with Holdfast(app) as hold:
        settings = hold._running._settings
        assert (str(settings.holdfast_data), settings.worker_concurrency) == ("from-file", 7)
    monkeypatch.setenv("HOLDFAST_DATA", "from-environment")
    async with Holdfast(app) as hold:
        await hold.result(await hold.submit(workload, invoice("1")))
    assert (tmp_path / "from-environment" / "holdfast.db").is_file()
    async with Holdfast(app, data="from-code", settings={"worker_concurrency": 9}) as hold:
        settings = hold._running._settings
        assert (str(settings.holdfast_data), settings.worker_concurrency) == ("from-code", 9)
    async with Holdfast(app, data=tmp_path / "plain", settings=Settings(worker_concurrency=3)) as hold:
        settings = hold._running._settings
        assert (settings.holdfast_data, settings.worker_concurrency) == (tmp_path / "plain", 3)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"worker_concurency": 3}, "no setting worker_concurency"),
        ({"worker_concurrency": 0}, "WORKER_CONCURRENCY must be a whole number from 1 to"),
        ({"holdfast_data": ""}, "data folder must have a name"),
        ({"redis_url": "redis://127.0.0.1:1/0"}, "MONGO_URI"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(tmp_path, settings, problem):
    hold = Holdfast(app_with()[0], settings=settings)
    with pytest.raises(ConfigurationError, match=problem):
        await hold.__aenter__()
    assert not (tmp_path / "holdfast-data").exists()


# --- the process ------------------------------------------------------------------------------------------------------


async def test_the_process_stays_as_it_was(file):
    app, workload = app_with()
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    interval, tasks = sys.getswitchinterval(), asyncio.all_tasks()
    root, threads = list(logging.getLogger().handlers), set(threading.enumerate())
    async with Holdfast(app, **file) as hold:
        await hold.result(await hold.submit(workload, invoice("1")))
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
        assert sys.getswitchinterval() == interval
    assert asyncio.all_tasks() == tasks
    assert list(logging.getLogger().handlers) == root
    assert [each.name for each in set(threading.enumerate()) - threads if "holdfast" in each.name.lower()] == []


async def test_failures_are_logged_once_by_the_logger_holdfast(file, caplog):
    app, workload = app_with()
    caplog.set_level(logging.DEBUG, "holdfast")
    other = {"data": file["data"].with_name("other"), "settings": QUICK}
    async with Holdfast(app, **file) as hold, Holdfast(app_with()[0], **other):
        receipt = await hold.submit(workload, invoice("bad"))
        await eventually(lambda: _ended(hold, receipt))
        emit(events.QUEUE_LOST, url="redis://user:secret-word@host/0")
    letters = [each for each in caplog.records if each.message.startswith("job.dead_lettered")]
    assert [(each.name, each.levelname) for each in letters] == [("holdfast", "WARNING")]
    assert letters[0].holdfast["key"] == "bad"
    assert "secret-word" not in caplog.text
    caplog.clear()
    emit(events.QUEUE_LOST)
    assert caplog.records == []


async def _ended(hold, receipt):
    return (await hold.job(receipt)).status.terminal


def test_a_program_that_configures_no_logging_sees_failures_alone(tmp_path):
    """As Python does it: the handler of last resort writes warnings to standard error."""
    program = """
import asyncio
from holdfast import Holdfast, JobFailed
from tests.embedding.work import Invoice, app_with

async def main():
    app, workload = app_with()
    async with Holdfast(app, data="data") as hold:
        await hold.result(await hold.submit(workload, Invoice(number="good", cents=1)))
        try:
            await hold.result(await hold.submit(workload, Invoice(number="bad", cents=1)))
        except JobFailed:
            print("failed")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "failed\n"
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["job.dead_lettered"]
