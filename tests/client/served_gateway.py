"""A whole gateway on a real socket, in a thread: the API, a worker and maintenance, for clients that block."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holdfast import App, Collection, Context, Reject, Tick, Upsert
from tests.api.serving import ApiThread
from tests.client.callers import Caller
from tests.support.gateway import opened
from tests.support.settings import load

TOKEN = "an-operator-token-of-the-tests-0123456789"
SOURCE = "courier-x"
SECRET = "whsec_" + base64.b64encode(b"the secret of courier-x, for tests").decode()
CALLBACK_SECRET = "whsec_" + base64.b64encode(b"the secret of callbacks, for tests").decode()


class Invoice(BaseModel):
    number: str
    cents: int
    customer: str = "ACME"


app = App()
INVOICES = Collection("client_invoices", key="number", indexes=(("customer",),))


@app.job(key="number", attempts=1, labels=("customer",), collections=(INVOICES,))
async def issue_invoice(invoice: Invoice, ctx: Context) -> dict[str, int]:
    if invoice.cents <= 0:
        code = "NOTHING_TO_PAY"
        raise Reject(code, "An invoice must ask for more than nothing.")
    ctx.write(Upsert(INVOICES.name, invoice.number, {"customer": invoice.customer, "cents": invoice.cents}))
    return {"cents": invoice.cents}


@app.job(key="number", attempts=1)
async def count_cents(invoice: Invoice, ctx: Context) -> int:
    return invoice.cents


@app.job(key="number", attempts=1, timeout="5m")
async def wait_for_the_end(invoice: Invoice, ctx: Context) -> None:
    ctx.progress(1, 2, "waiting")
    await ctx.until_cancelled()


@app.schedule("0 7 * * 1-5", timezone="America/Sao_Paulo")
async def remind(tick: Tick, ctx: Context) -> None:
    ctx.log("reminded")


class ServedGateway(ApiThread):
    """``key`` is the API key of a tenant, ``token`` the operator's."""

    token = TOKEN

    def __init__(self, folder: Path, app: App = app, **environment: str) -> None:
        super().__init__(folder)
        self._app = app
        self._environment: Mapping[str, str] = environment
        self.key = ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        facts = {
            "HOLDFAST_DATA": str(self.folder),
            "OPERATOR_TOKEN": TOKEN,
            "COURIER_SECRETS": json.dumps({SOURCE: SECRET}),
            "DOCUMENT_CALLBACK_SECRET": CALLBACK_SECRET,
            "UPKEEP_INTERVAL_MS": "50",
        }
        settings = load({**facts, **self._environment}, self.folder)
        async with opened(settings, self._app) as gateway:
            tenant = await gateway.tenants.add("acme")
            _, self.key = await gateway.tenants.create_key(tenant.company_id)
            async with gateway.running():
                yield gateway.system.api()
                await asyncio.sleep(0)


def in_real_time(kind: type[Caller], gateway: ServedGateway, **options: Any) -> Caller:
    """A caller of this gateway, with the tenant's key and the operator's token."""
    return kind(gateway.url, real_time=True, **({"key": gateway.key, "token": gateway.token} | options))
