"""A producer of emails for a running gateway, and the mail server that notes when each message came.

The test itself is the producer: it has the same system open as the workers, and hands emails in as the API does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.contracts.ledger import LedgerEntry
from holdfast.wiring import System, open_system
from tests.support.counted_work import app
from tests.support.email_traffic import mail_server, mail_settings
from tests.support.load import MODES
from tests.support.running_gateway import RunningGateway, parts_of
from tests.support.settings import load
from tests.support.smtp_server import taken_in

_AT_A_TIME = 40
"""More at once would wait so long for MongoDB on a slow machine that it counts as out of reach."""
_UNHURRIED = {
    "WORKER_CONCURRENCY": "100",
    "WORKER_LEASE_SECONDS": "30",
    "WORKER_DRAIN_TIMEOUT_MS": "2000",
    "UPKEEP_INTERVAL_MS": "1000",
    "PUBLISH_GRACE_MS": "5000",
    "LOG_LEVEL": "info",
}
"""As shipped: these tests look at the pace of a gateway that nothing happens to."""


@dataclass(frozen=True)
class Message:
    """One message that the mail server accepted: its tenant, and when it was complete (``time.time()``)."""

    tenant: str
    number: int
    at: float


@dataclass
class EmailProducer:
    """Tenants who hand in emails, and what the mail server took."""

    system: System
    gateway: RunningGateway
    log: Path
    companies: dict[str, str] = field(default_factory=dict)
    _submitted: int = 0

    async def tenant(self, name: str, *, rate: int | None = None) -> None:
        self.companies[name] = (await self.system.tenants.add(name, rate_per_second=rate)).company_id

    async def hand_in(self, tenant: str, count: int, **changes: Any) -> list[str]:
        """Accept so many emails of the tenant; their outbox ids."""
        numbers = range(self._submitted, self._submitted + count)
        self._submitted += count
        ids: list[str] = []
        for start in range(0, count, _AT_A_TIME):
            part = numbers[start : start + _AT_A_TIME]
            ids += await asyncio.gather(*(self._accept(tenant, number, changes) for number in part))
        return ids

    async def _accept(self, tenant: str, number: int, changes: dict[str, Any]) -> str:
        email, clock = self.system.service("email"), self.system.ambient.clock
        assert email is not None
        body = {
            "to": f"{tenant}-{number}@example.com",
            "subject": "Seu boleto",
            "html": "<p>Boleto</p>",
            "recipient": {"externalId": f"{tenant}-{number}"},
        }
        admitted = await email.admission.admit(
            body | changes,
            company_id=self.companies[tenant],
            idempotency_key=None,
            request_id="req-limits",
            received_at=clock.now(),
        )
        receipt = await self.system.intake.accept(
            email.workload,
            admitted.data,
            priority=admitted.priority,
            delay=admitted.delay,
            effects=admitted.effects,
        )
        return receipt.job_id

    async def workers(self, count: int) -> None:
        started = await asyncio.gather(*(self.gateway.fleet.start("worker") for _ in range(count)))
        assert all(worker.ready for worker in started)

    def messages(self) -> list[Message]:
        """The messages that the mail server has accepted, in the order of arrival."""
        found = []
        for line in taken_in(self.log):
            tenant, _, number = line["recipients"][0].partition("@")[0].rpartition("-")
            found.append(Message(tenant, int(number), line["at"]))
        return found

    async def until(self, condition: Callable[[list[Message]], bool], *, within: float = 200) -> list[Message]:
        """Wait until the accepted messages are as wanted. With the deadline, a broken program fails the test."""
        clock = asyncio.get_running_loop().time
        end = clock() + within
        while not condition(found := self.messages()):
            assert clock() < end, f"{len(found)} messages after {within} s"
            await asyncio.sleep(0.1)
        return found

    async def settled(self, outbox_id: str) -> LedgerEntry:
        """The entry of an email that the server has accepted. Waits until the entry is settled."""
        while True:
            entry = await self.system.store.entry("email", outbox_id)
            assert entry is not None
            if entry.status.terminal:
                return entry
            await asyncio.sleep(0.02)


@asynccontextmanager
async def email_producer(folder: Path, **settings: str) -> AsyncIterator[EmailProducer]:
    """Without servers in ``settings``, the gateway is the embedded deployment, on a file. It has no process yet."""
    async with mail_server(folder) as (port, log):
        variables = _UNHURRIED | mail_settings(port) | settings
        async with parts_of(folder, 0, variables, MODES) as parts:
            gateway = RunningGateway(**parts)
            async with open_system(load(gateway.fleet.environment, folder), app) as system:
                try:
                    yield EmailProducer(system, gateway, log)
                finally:
                    # Stop, not kill: MongoDB keeps the transaction of a killed client open for a minute.
                    await asyncio.gather(*(member.terminate() for member in gateway.fleet.members))
                    await system.intake.drain()


def servers(valkey: Any, mongo: Any, database: str) -> dict[str, str]:
    """The settings of a cluster on these servers, with its own database and prefix."""
    return {"REDIS_URL": valkey.url, "MONGO_URI": mongo.uri, "MONGO_DB_NAME": database, "QUEUE_PREFIX": database}
