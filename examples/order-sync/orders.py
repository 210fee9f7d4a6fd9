"""Orders of many shops go to a warehouse. Its API allows 5 calls a second for each shop, and is sometimes away."""

import os

import httpx
from pydantic import BaseModel

from holdfast import App, Context, Snooze, Tick

app = App()
warehouse = httpx.AsyncClient(base_url=os.environ.get("WAREHOUSE_URL", "http://127.0.0.1:9000"))


class Order(BaseModel):
    shop: str
    number: str


@app.job(key="number", name="order-sync", attempts=5, backoff=["1s", "10s", "1m"], ttl="6h", labels=["shop"])
async def sync_order(order: Order, ctx: Context) -> str | Snooze:
    if wait := await ctx.reserve(f"warehouse/{order.shop}", "5/s"):
        return Snooze(wait, "5 a second for each shop")
    answer = (await warehouse.put(f"/orders/{order.number}", json=order.model_dump())).raise_for_status()
    ctx.submit(confirm_order, order)
    return str(answer.json()["place"])


@app.job(key="number", name="order-confirmation")
async def confirm_order(order: Order) -> None:
    (await warehouse.post(f"/orders/{order.number}/confirmation")).raise_for_status()


@app.schedule("30 2 * * *", timezone="America/Sao_Paulo")
async def sync_missing_orders(tick: Tick, ctx: Context) -> None:
    answer = await warehouse.get("/missing", params={"until": tick.at.isoformat()})
    for missing in answer.raise_for_status().json()["missing"]:
        ctx.submit(sync_order, Order.model_validate(missing))
