"""The app that the tests of the harness are about: orders, written as a user writes them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from holdfast import App, Collection, Context, SyncContext, TransientError, Upsert, crash_point


class Order(BaseModel):
    number: str
    shop: str = "north"


class Synced(BaseModel):
    number: str
    attempt: int


class Busy(TransientError):
    def __init__(self) -> None:
        super().__init__("BUSY", "later")


class Shop:
    """An app, and what its handlers do: the test says it."""

    def __init__(self) -> None:
        self.app = App()
        self.calls: list[str] = []
        self.threads: set[str] = set()
        self.script: Callable[[Order, Context], Any] = lambda order, ctx: None
        shop = self

        @self.app.job(
            key="number",
            attempts=3,
            backoff=["10s", "1m"],
            ttl="1h",
            collections=[Collection("orders", key="number")],
            labels=("shop",),
        )
        async def sync_order(order: Order, ctx: Context) -> Synced:
            shop.calls.append(f"{order.number}#{ctx.job.attempt}")
            said = shop.script(order, ctx)
            said = await said if asyncio.iscoroutine(said) else said
            if said is not None:
                return said
            ctx.write(Upsert("orders", order.number, {"state": "synced"}))
            return Synced(number=order.number, attempt=ctx.job.attempt)

        @self.app.job(key="number")
        async def send_mail(order: Order, ctx: Context) -> None:
            shop.calls.append(f"mail {order.number}")

        @self.app.job(key="number", attempts=2, backoff=["1s"])
        def in_a_thread(order: Order, ctx: SyncContext) -> str:
            shop.threads.add(threading.current_thread().name)
            time.sleep(0.001)
            crash_point("shop.in_a_thread")
            with ctx.limit("threads", "2/m"):
                shop.calls.append(f"thread {order.number}")
            return order.number

        @self.app.job(key="number", rate="2/m")
        async def limited(order: Order) -> None:
            shop.calls.append(f"limited {order.number}")

        @self.app.job(key="number")
        async def permitted(order: Order, ctx: Context) -> None:
            async with ctx.limit("shop", "3/m"):
                shop.calls.append(f"permitted {order.number}")

        self.sync_order = sync_order
        self.send_mail = send_mail
        self.in_a_thread = in_a_thread
        self.limited = limited
        self.permitted = permitted
