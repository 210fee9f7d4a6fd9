"""Works jobs that a Node program has added with npm's bullmq."""

from pydantic import BaseModel, Field

from holdfast import App, Context

app = App()


class Order(BaseModel):
    number: str
    cents: int = Field(gt=0)


class Booked(BaseModel):
    number: str
    attempt: int


@app.job(key="number", queue="orders")
async def book_order(order: Order, ctx: Context) -> Booked:
    return Booked(number=order.number, attempt=ctx.job.attempt)
