"""The program of DESIGN section 8 runs as it stands there: inside, over HTTP, and in a test."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import Holdfast
from holdfast.contracts.times import to_ms
from holdfast.sqlite import Database
from tests.client.served_gateway import ServedGateway
from tests.embedding.design_program import Invoice, Pdf, app, in_a_test, inside, issue_invoice, over_http
from tests.support.clock import SettableClock
from tests.support.waiting import eventually

INVOICE = Invoice(number="7", cents=250_000)
PDF = Pdf(title="Invoice 7", pages=3)


async def test_inside_of_a_program(monkeypatch, tmp_path):
    """The job has a delay of ten minutes: the clock of the ledger is moved as soon as the job is there."""
    clock = SettableClock()
    monkeypatch.setitem(Database.__init__.__kwdefaults__, "now", lambda: to_ms(clock.now()))
    running = asyncio.create_task(inside(INVOICE))
    async with Holdfast(app, worker=False, maintenance=False) as beside:

        async def submitted() -> bool:
            return [each.key async for each in beside.jobs(issue_invoice)] == ["7"]

        await eventually(submitted)
        clock.ahead = timedelta(minutes=10)
        assert await running == PDF
        assert (await beside.job((issue_invoice, "7"))).attempt_count == 1
    assert (tmp_path / "holdfast-data" / "holdfast.db").is_file()


def test_over_http(tmp_path):
    gateway = ServedGateway(tmp_path / "served", app)
    gateway.begin()
    try:
        assert over_http(gateway.url, gateway.key, INVOICE) == PDF.model_dump()
    finally:
        gateway.stop()


async def test_in_a_test():
    assert await in_a_test(INVOICE) == PDF
