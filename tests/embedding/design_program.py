"""The program that people should be able to write: DESIGN section 8, with the models and the bodies that it needs."""

from __future__ import annotations

from pydantic import BaseModel

import holdfast.testing
from holdfast import App, Client, Context, Holdfast, Tick


class Invoice(BaseModel):
    number: str
    cents: int


class Pdf(BaseModel):
    title: str
    pages: int


app = App()


@app.job(key="number", attempts=3)
async def issue_invoice(invoice: Invoice, ctx: Context) -> Pdf:
    ctx.log("issuing", number=invoice.number)
    return Pdf(title=f"Invoice {invoice.number}", pages=1 + invoice.cents // 100_000)


@app.schedule("0 7 * * 1-5", timezone="America/Sao_Paulo")
async def remind(tick: Tick, ctx: Context) -> None:
    ctx.log("reminding", at=str(tick.at))


async def inside(invoice: Invoice) -> Pdf:
    async with Holdfast(app, data="holdfast-data") as hold:
        receipt = await hold.submit(issue_invoice, invoice, delay="10m")
        pdf = await hold.result(receipt, timeout=30)
    return pdf  # noqa: RET504 - as it stands in the design


def over_http(url: str, key: str, invoice: Invoice) -> object:
    with Client(url, key=key) as client:
        job = client.submit("issue_invoice", invoice.model_dump())
        result = client.result(job, timeout=30)
        client.cancel(job)
    return result


async def in_a_test(invoice: Invoice) -> Pdf:
    async with holdfast.testing.Harness(app) as h:
        r = await h.submit(issue_invoice, invoice)
        await h.settle()
        await h.advance("1h")
        return await h.result(r)
