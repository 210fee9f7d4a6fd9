"""A web app with Holdfast inside: it accepts invoices over HTTP, and works them in its own process."""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from holdfast import App, Conflict, Context, Holdfast, NotFound, Status

app = App()
hold = Holdfast(app)  # the ledger and the queue are in HOLDFAST_DATA, by default in the folder holdfast-data
api = FastAPI(lifespan=hold.lifespan)


class Invoice(BaseModel):
    number: str
    customer: str
    cents: int = Field(gt=0)


class Pdf(BaseModel):
    file: str


class Accepted(BaseModel):
    number: str
    duplicate: bool


class Shown(BaseModel):
    status: Status
    pdf: Pdf | None


@app.job(key="number", attempts=3)
async def issue_invoice(invoice: Invoice, ctx: Context) -> Pdf:
    ctx.log("invoice issued", number=invoice.number)
    return Pdf(file=f"{invoice.number}.pdf")


@api.post("/invoices", status_code=202)
async def accept(invoice: Invoice) -> Accepted:
    """When this answers 202, the invoice is on disk."""
    try:
        receipt = await hold.submit(issue_invoice, invoice)
    except Conflict as error:
        raise HTTPException(409, "Another invoice has this number.") from error
    return Accepted(number=receipt.key, duplicate=receipt.duplicate)


@api.get("/invoices/{number}")
async def show(number: str) -> Shown:
    """How far the invoice is, and its PDF when it is done."""
    try:
        entry = await hold.job((issue_invoice, number))
    except NotFound as error:
        raise HTTPException(404, "There is no such invoice.") from error
    return Shown(status=entry.status, pdf=issue_invoice.result_of(entry.result))
