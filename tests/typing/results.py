"""The result of a job has the type that the function returns, without the outcomes that it may also return."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from holdfast import App, Context, Expired, Holdfast, JobFunction, Outcome, Retry, Snooze, SyncContext

app = App()


class Invoice(BaseModel):
    number: str


class Pdf(BaseModel):
    file: str


@app.job(key="number", name="waits")
async def waits(invoice: Invoice, ctx: Context) -> Pdf | Snooze | Expired:
    if ctx.cancelled:
        return Expired()
    return Pdf(file=invoice.number) if ctx.job.attempt > 1 else Snooze("1h", "not yet")


@app.job(key="number", name="in-a-thread")
def in_a_thread(invoice: Invoice, ctx: SyncContext) -> Pdf | Outcome:
    return Pdf(file=invoice.number) if ctx.job.attempt > 1 else Retry("BUSY", after="5s")


@app.job(key="number", name="alone")
async def alone(invoice: Invoice) -> Pdf | None:
    return Pdf(file=invoice.number)


@app.job(key="number", name="outcomes")
async def outcomes(invoice: Invoice) -> Outcome:
    return Snooze(60)


async def main(hold: Holdfast) -> None:
    assert_type(waits, JobFunction[Invoice, Pdf])
    assert_type(in_a_thread, JobFunction[Invoice, Pdf])
    assert_type(alone, JobFunction[Invoice, Pdf | None])
    assert_type(outcomes, JobFunction[Invoice, Any])
    receipt = await hold.submit(waits, Invoice(number="7"))
    assert_type(await hold.result(receipt), Pdf)
    ends_anywhere(await hold.result(receipt))


def ends_anywhere(value: object) -> None:
    del value
