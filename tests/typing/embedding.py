"""What a type checker knows about a program with Holdfast inside. Checked by test_typing.py, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import assert_type

from fastapi import FastAPI
from pydantic import BaseModel

from holdfast import (
    App,
    Context,
    Done,
    Holdfast,
    Job,
    JobFailed,
    JobFunction,
    LedgerEntry,
    Outcome,
    Submission,
    SyncContext,
    Workload,
)


class Invoice(BaseModel):
    number: str


class Order(BaseModel):
    number: str


class Pdf(BaseModel):
    pages: int


app = App()


@app.job(key="number", attempts=3)
async def issue_invoice(invoice: Invoice, ctx: Context) -> Pdf:
    return Pdf(pages=len(invoice.number))


@app.job(key="number")
def count(order: Order, ctx: SyncContext) -> int:
    return len(order.number)


@app.job(key=lambda order: order.number)
async def forward(order: Order) -> list[str]:
    return [order.number]


class Orders(Workload[Order]):
    name = "orders"
    contract = Order
    queue = "orders"
    dead_letter_queue = "orders-dlq"

    def key(self, data: Order) -> str:
        return data.number

    async def handle(self, job: Job[Order], context: Context) -> Outcome:
        return Done()


orders = Orders()
app.add(orders)

assert_type(issue_invoice, JobFunction[Invoice, Pdf])
assert_type(count, JobFunction[Order, int])
assert_type(forward, JobFunction[Order, list[str]])


async def main(invoice: Invoice, order: Order) -> None:
    async with Holdfast(app, data="holdfast-data", settings={"worker_concurrency": 10}) as hold:
        receipt = await hold.submit(issue_invoice, invoice, delay="10m")
        assert_type(receipt, Submission[Pdf])
        pdf = await hold.result(receipt, timeout=30)
        assert_type(pdf, Pdf)
        assert_type(await hold.result((issue_invoice, "1"), timeout=0), Pdf)
        await hold.result(("issue_invoice", "1"))
        assert_type(await hold.result(await hold.submit(count, order)), int)
        assert_type([await hold.result(each) for each in await hold.submit_many(forward, [order])], list[list[str]])
        await hold.submit(orders, order)
        await hold.submit("orders", {"number": "1"}, priority=3)
        await hold.submit_many("orders", [{"number": "1"}])
        await hold.submit_many(orders, [order])
        entry = await hold.job((issue_invoice, "1"))
        assert_type(entry, LedgerEntry)
        async for each in hold.jobs(issue_invoice, status="processed"):
            assert_type(each, LedgerEntry)
        if await hold.cancel(receipt):
            return


hold = Holdfast(app)


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncGenerator[None, None]:
    async with hold:
        yield


whole = FastAPI(lifespan=hold.lifespan)
whole.mount("/jobs-api", hold.asgi)
composed = FastAPI(lifespan=lifespan)


@whole.post("/invoices")
async def create(invoice: Invoice) -> str:
    try:
        return (await hold.submit(issue_invoice, invoice)).key
    except JobFailed as error:
        return error.letter_id
