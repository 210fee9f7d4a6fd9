"""Jobs that are functions, in one's own process: their results have the types of the functions."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from pydantic import BaseModel

from holdfast import App, Context, Holdfast, InvalidContent, JobFailed, NotFound, Reject, Submission, SyncContext
from holdfast.stores.sqlite import SqliteStore
from tests.embedding.work import QUICK
from tests.support.waiting import eventually


class Invoice(BaseModel):
    number: str


class Pdf(BaseModel):
    title: str


app = App()


@app.job(key="number")
async def issue(invoice: Invoice, ctx: Context) -> Pdf:
    if invoice.number == "bad":
        code = "NO_PAPER"
        raise Reject(code, "There is no paper.")
    return Pdf(title=invoice.number)


@app.job(key="number")
def count(invoice: Invoice, ctx: SyncContext) -> int:
    return len(invoice.number)


@app.job(key="number", ttl="1h", name="order-sync")
async def nothing(invoice: Invoice) -> None:
    """Has no result."""


async def test_results_have_the_types_of_the_functions(place):
    async with Holdfast(app, **place) as hold:
        receipt = await hold.submit(issue, Invoice(number="1"))
        assert receipt.job is issue
        assert await hold.result(receipt, timeout="1m") == Pdf(title="1")
        assert await hold.result(await hold.submit(count, Invoice(number="four")), timeout="1m") == 4
        assert await hold.result(await hold.submit(nothing, Invoice(number="1")), timeout="1m") is None
        untyped = await hold.result(await hold.submit("issue", {"number": "2"}), timeout="1m")
        assert untyped == {"title": "2"}
        assert await hold.result((issue, "1"), timeout="1m") == Pdf(title="1")  # as after a restart
        assert await hold.result(("issue", "1"), timeout="1m") == {"title": "1"}
        with pytest.raises(JobFailed) as failure:
            await hold.result(await hold.submit(issue, Invoice(number="bad")), timeout="1m")
        assert (failure.value.code, failure.value.key) == ("NO_PAPER", "bad")
        assert [each.key async for each in hold.jobs("order-sync")] == ["1"]


async def test_a_delay_beyond_the_ttl_is_refused(tmp_path):
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK) as hold:
        with pytest.raises(InvalidContent):
            await hold.submit(nothing, Invoice(number="1"), delay="2h")
        assert [each async for each in hold.jobs(nothing)] == []


async def test_a_job_keeps_its_trace(tmp_path):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK) as hold:
        traced = await hold.submit(issue, Invoice(number="1"), traceparent=parent, request_id="req-7")
        labels = (await hold.job(traced)).labels
        assert labels == {"traceId": parent[3:35], "traceparent": parent, "requestId": "req-7"}
        plain = [(await hold.job(await hold.submit(issue, Invoice(number=each)))).labels for each in ("2", "3")]
        assert [len(each["traceId"]) for each in plain] == [32, 32]
        assert plain[0] != plain[1]
        with pytest.raises(ValueError, match="request id"):
            await hold.submit(issue, Invoice(number="4"), request_id="two words")


async def test_a_job_that_the_ledger_does_not_have_is_not_waited_for(tmp_path):
    unknown = Submission("issue", "9", "9", duplicate=False, received_at=datetime.now(UTC))
    async with Holdfast(app, data=tmp_path / "data", settings=QUICK) as hold:
        with pytest.raises(NotFound):
            await hold.result(unknown, timeout="10ms")


async def test_a_thousand_results_at_once_cost_a_few_reads(tmp_path):
    """One read for each job when it has ended, and the shared polls in between: not one poll for each."""
    gate = asyncio.Event()
    waiting = App()

    @waiting.job(key="number")
    async def wait(invoice: Invoice, ctx: Context) -> str:
        await gate.wait()
        return invoice.number

    reads: Counter[str] = Counter()

    def counted(name):
        call = getattr(SqliteStore, name)

        async def read(self, *arguments):
            reads[name] += 1
            return await call(self, *arguments)

        return patch.object(SqliteStore, name, read)

    with counted("entry"), counted("ended"):
        async with Holdfast(waiting, data=tmp_path / "data", settings=QUICK) as hold:
            receipts = await hold.submit_many(wait, [Invoice(number=str(each)) for each in range(1000)])
            results = asyncio.gather(*(hold.result(each, timeout="5m") for each in receipts))
            await eventually(lambda: reads["ended"] >= 4)  # at least two polls while nothing ends
            assert reads["entry"] == 0
            before = reads["ended"]
            gate.set()
            assert await results == [str(each) for each in range(1000)]
        assert reads["entry"] == 1000
        # The rest of the polls: two reads for each quarter of a second that the work takes, whatever the machine does.
        assert reads["ended"] - before < 500
