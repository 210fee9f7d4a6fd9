"""A FastAPI app with a worker inside, for uvicorn: ``uvicorn tests.embedding.web_program:api``.

``GATES`` is a folder: the job of the invoice ``slow-x`` makes ``slow-x.began`` there, and waits for ``slow-x.open``.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from holdfast import App, Collection, Conflict, Context, Holdfast, Upsert

GATES = Path(os.environ.get("GATES", "."))


class Invoice(BaseModel):
    number: str
    cents: int


class Pdf(BaseModel):
    title: str


app = App()


@app.job(key="number", attempts=3, timeout="5m", collections=[Collection("issued", key="number")])
async def issue_invoice(invoice: Invoice, ctx: Context) -> Pdf:
    if invoice.number.startswith("slow"):
        (GATES / f"{invoice.number}.began").touch()
        while not (GATES / f"{invoice.number}.open").exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(0.01)
    record = await ctx.get("issued", invoice.number)
    ctx.write(Upsert("issued", invoice.number, {"times": 1 + (record or {}).get("times", 0)}))
    return Pdf(title=f"Invoice {invoice.number}")


hold = Holdfast(app)
api = FastAPI(lifespan=hold.lifespan)
api.mount("/jobs-api", hold.asgi)


@api.post("/invoices", status_code=202)
async def create(invoice: Invoice) -> dict[str, str]:
    try:
        receipt = await hold.submit(issue_invoice, invoice)
    except Conflict as conflict:
        raise HTTPException(409, conflict.message) from conflict
    return {"key": receipt.key}


@api.post("/invoices/now")
async def create_now(invoice: Invoice) -> Pdf:
    receipt = await hold.submit(issue_invoice, invoice)
    return await hold.result(receipt, timeout=60)
