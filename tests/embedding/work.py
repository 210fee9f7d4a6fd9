"""Workloads of a small program that has Holdfast inside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from holdfast import App, Collection, Context, Done, Job, ListedDelays, Outcome, Reject, Upsert, Workload


class Invoice(BaseModel):
    number: str
    cents: int = Field(gt=0)


class Invoices(Workload[Invoice]):
    """Writes the invoice down. Number ``bad`` is refused, ``slow`` waits for :attr:`gate`."""

    name = "invoices"
    contract = Invoice
    queue = "invoices-main"
    dead_letter_queue = "invoices-dlq"
    retry = ListedDelays((timedelta(0),), max_attempts=2)
    collections: Sequence[Collection] = (Collection("invoices", key="number"),)
    indexed_labels: Sequence[str] = ("size",)

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began: list[str] = []
        self.finished: list[str] = []

    def key(self, data: Invoice) -> str:
        return data.number

    def labels(self, data: Invoice) -> dict[str, str]:
        return {"size": "large" if data.cents >= 1000 else "small"}

    async def handle(self, job: Job[Invoice], context: Context) -> Outcome:
        number = job.data.number
        self.began.append(number)
        if number.startswith("slow"):
            await self.gate.wait()
        if number.startswith("bad"):
            return Reject("NOTHING_TO_PAY", "An invoice must ask for more.")
        self.finished.append(number)
        return Done([Upsert("invoices", number, {"cents": job.data.cents})], result={"total": job.data.cents})


def app_with(workload: Invoices | None = None) -> tuple[App, Invoices]:
    workload = workload or Invoices()
    return App([workload]), workload


QUICK: dict[str, Any] = {
    "upkeep_interval_ms": 50,
    "publish_grace_ms": 50,
    "worker_lease_seconds": 1,
    "worker_drain_timeout_ms": 5_000,
    "operator_token": "q7Hd2Lm9Xv4Tb8Rk1Zc6",
}
"""What heals by waiting heals soon."""
