"""Every sale adds to the total of its day. In the night, the report of the day is written to a file."""

import os
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel, Field

from holdfast import App, Collection, Context, SyncContext, Tick, Upsert

HERE = "America/Sao_Paulo"
REPORTS = Path(os.environ.get("REPORTS", "reports"))

app = App()


class Sale(BaseModel):
    number: str
    cents: int = Field(gt=0)
    at: AwareDatetime


@app.job(key="number", collections=[Collection("days", key="day")])
async def record_sale(sale: Sale, ctx: Context) -> None:
    day = sale.at.astimezone(ZoneInfo(HERE)).date().isoformat()
    ctx.write(Upsert("days", day, add={"sales": 1, "cents": sale.cents}))


@app.schedule("5 0 * * *", timezone=HERE, catch_up="all")
def write_report(tick: Tick, ctx: SyncContext) -> str:
    day = (tick.at.astimezone(ZoneInfo(HERE)) - timedelta(days=1)).date().isoformat()
    total = ctx.get("days", day) or {"sales": 0, "cents": 0}
    REPORTS.mkdir(exist_ok=True)
    file = REPORTS / f"{day}.txt"
    file.write_text(f"{day}: {total['sales']} sales, {total['cents'] / 100:.2f} in all\n")
    return str(file)
