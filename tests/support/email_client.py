"""A tenant who sends emails through a gateway in this process, and the mail server that takes them.

``email_client`` has the embedded deployment on a clock that a test moves. With ``apart=True`` its store does not
publish by itself, as in a cluster, so that the queue may be unavailable. ``email_client_of_cluster`` is the same on
MongoDB and Valkey, in real time.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Upsert
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ledger import LedgerEntry
from holdfast.contracts.queries import LetterQuery
from holdfast.contracts.queues import Depth, QueueJob
from holdfast.contracts.tenants import TENANT_COLLECTIONS
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Receipt
from holdfast.features.email.admission import EmailAdmission
from holdfast.features.email.contract import (
    DEAD_LETTER_QUEUE_NAME,
    QUEUE_NAME,
    EmailDeadLetter,
)
from holdfast.features.email.mime import Sender
from holdfast.features.email.records import CONTENT, LOG, OUTBOX, content_key
from holdfast.features.email.request import RequestLimits
from holdfast.features.email.suppression import Suppressions
from holdfast.features.email.transports.smtp import SmtpOptions, SmtpTransport
from holdfast.features.email.vault import Vault
from holdfast.features.email.workload import Email, EmailOptions
from holdfast.wiring import system_ambient
from tests.support.clock import ManualClock
from tests.support.gateway import LEASE, Gateway, assembled, assert_counts_its_attempts, with_parts
from tests.support.letters import whole_letters
from tests.support.smtp_server import SmtpServer, Taken
from tests.support.waiting import eventually

DOMAIN = "sender.example"
CPF = "529.982.247-25"
VAULT = Vault(bytes(range(32)), {"first": bytes(range(100, 132))}, "first")
DAY = timedelta(hours=24)

_PATIENCE = timedelta(seconds=10)
_numbers = count(1)


def smtp(server: SmtpServer, **changes: Any) -> SmtpTransport:
    options = {"timeout": _PATIENCE, "final_timeout": _PATIENCE, "security": "none"} | changes
    return SmtpTransport(SmtpOptions(server.host, server.port, **options))


def email(transport: Any, **options: Any) -> Email:
    """The workload; the options are those of ``EmailOptions``, with the defaults of the specification."""
    given = {"sender": Sender("mail@sender.example", "Holdfast"), "domain": DOMAIN} | options
    return Email(EmailOptions(**given), VAULT, transport)


def a_letter(**changes: Any) -> dict[str, Any]:
    """A new request. A change to None removes the field."""
    number = next(_numbers)
    body = {
        "to": f"maria{number}@example.com",
        "subject": f"Boleto {number} disponível",
        "html": f"<p>Olá, boleto <b>{number}</b></p>",
        "recipient": {"externalId": f"CUST-{number}", "nome": "Maria Souza", "cpfCnpj": CPF},
    } | changes
    return {name: value for name, value in body.items() if value is not None}


@dataclass
class EmailClient:
    """What a test does with emails. They are named by their outbox ids."""

    gateway: Gateway
    workload: Email
    server: SmtpServer
    admission: EmailAdmission
    suppressions: Suppressions
    company: str

    # --- the tenant -----------------------------------------------------------------------------------------

    async def accept(self, body: dict[str, Any], *, key: str | None = None) -> Receipt:
        """Accept a request, as the API does."""
        admitted = await self.admission.admit(
            body,
            company_id=self.company,
            idempotency_key=key,
            request_id="req-abc123",
            received_at=self.gateway.ambient.clock.now(),
        )
        return await self.gateway.intake.accept(
            self.workload,
            admitted.data,
            priority=admitted.priority,
            delay=admitted.delay,
            effects=admitted.effects,
        )

    async def post(self, **changes: Any) -> str:
        """Submit an email; its outbox id."""
        return (await self.accept(a_letter(**changes))).job_id

    async def put_into_queue(self, *, job_id: str | None = None, **changes: Any) -> str:
        """Put a job straight into the queue, as an external producer does."""
        data = {
            "outboxId": str(uuid.uuid4()),
            "companyId": self.company,
            "requestId": "req-node",
            "to": "jose@example.com",
            "subject": "Direto da fila",
            "htmlRef": "ref",
            "recipient": {"externalId": "NODE-1", "email": "jose@example.com"},
            "attempt": 1,
            "enqueuedAt": isoformat(self.gateway.ambient.clock.now()),
        } | changes
        job = QueueJob(job_id or data["outboxId"], json.dumps(data))
        await self.gateway.broker.publish(QUEUE_NAME, [job])
        return data["outboxId"]

    async def keep_html(self, html: str = "<p>Olá</p>", ref: str = "ref") -> None:
        """Store HTML of the tenant, for jobs that refer to it."""
        facts = {"companyId": self.company, "html": html}
        await self.gateway.store.apply([Upsert(CONTENT, content_key(self.company, ref), facts)])

    # --- looking --------------------------------------------------------------------------------------------

    async def outbox(self, outbox_id: str) -> dict[str, Any]:
        return dict(await self.gateway.store.get(OUTBOX, outbox_id) or {})

    async def status(self, outbox_id: str) -> str | None:
        return (await self.outbox(outbox_id)).get("status")

    async def log(self, outbox_id: str) -> dict[str, Any] | None:
        return await self.gateway.store.get(LOG, outbox_id)

    async def entry(self, outbox_id: str) -> LedgerEntry:
        entry = await self.gateway.store.entry("email", outbox_id)
        assert entry is not None, f"no entry for {outbox_id}"
        assert_counts_its_attempts(entry)
        return entry

    async def until(self, outbox_id: str, status: str, **facts: Any) -> dict[str, Any]:
        """Wait until the outbox has this status and these fields."""
        wanted = {"status": status, **facts}

        async def reached() -> dict[str, Any] | None:
            record = await self.outbox(outbox_id)
            return record if wanted.items() <= record.items() else None

        return await eventually(reached)

    async def letters(self) -> list[DeadLetter]:
        return await whole_letters(self.gateway.store, LetterQuery())

    async def published_letters(self) -> list[dict[str, Any]]:
        """Take the jobs of ``email:send:dlq``, and validate each by the contract."""
        await self.gateway.maintenance.round()
        taken = await self.gateway.queued(DEAD_LETTER_QUEUE_NAME)
        for _, data in taken:
            EmailDeadLetter.model_validate_json(data)
        return [json.loads(data) for _, data in taken]

    def delivered(self, outbox_id: str) -> list[Taken]:
        """The messages of this email that the mail server accepted."""
        return [each for each in self.server.taken if each.message_id == f"<{outbox_id}@{DOMAIN}>"]

    async def depth(self) -> Depth:
        return await self.gateway.broker.depth(QUEUE_NAME)

    async def idle(self) -> None:
        """Wait until the queue has no waiting or active job."""

        async def nothing() -> bool:
            depth = await self.depth()
            return (depth.ready, depth.delayed, depth.active) == (0, 0, 0)

        await eventually(nothing)

    # --- time and work --------------------------------------------------------------------------------------

    def working(self, **options: Any) -> AbstractAsyncContextManager[Any]:
        return self.gateway.working(**options)

    def later(self, duration: timedelta) -> None:
        """Move the clock of the test. On a real clock, do nothing: the delays are short there."""
        if isinstance(self.gateway.clock, ManualClock):
            self.gateway.clock.advance(duration)

    async def lose_worker(self, reached: Callable[[], Any], *, lease: timedelta = LEASE) -> None:
        """Run a worker until this point, and then lose the worker: it settles nothing more."""
        execution, stop = self.gateway.execution(lease=lease), asyncio.Event()
        running = asyncio.create_task(execution.run(stop, timedelta(0)))
        await eventually(reached)
        self.gateway.store.break_down(StoreUnavailable(), "settle", "renew")
        stop.set()
        tasks = [running, *(each.task for each in execution._running.values() if each.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await execution._context.settle()
        self.gateway.store.repair()

    async def replay(self, letter: DeadLetter) -> None:
        await self.gateway.review.review(letter.id, actor="ana", reason="looked")
        await self.gateway.review.replay(letter.id, actor="ana", reason="mended")


@asynccontextmanager
async def email_client(
    transport: Any = None,
    *,
    apart: bool = False,
    path: Path | None = None,
    smtp_options: dict[str, Any] | None = None,
    server_options: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[EmailClient]:
    """The embedded deployment. Without a ``transport``, mail goes to a mail server of this test."""
    with SmtpServer(**(server_options or {})) as server:
        workload = email(transport or smtp(server, **(smtp_options or {})), **options)
        async with assembled(workload, path, outbox=not apart) as gateway, _client(gateway, server) as client:
            yield client


@asynccontextmanager
async def email_client_of_cluster(
    mongo_uri: str, database: str, redis_url: str, prefix: str, **options: Any
) -> AsyncIterator[EmailClient]:
    """The cluster's own adapters on real servers."""
    from holdfast.brokers.bullmq import BullmqBroker
    from holdfast.stores.mongo import MongoStore

    async with AsyncExitStack() as stack:
        server = stack.enter_context(SmtpServer())
        workload = email(smtp(server, **options.pop("smtp_options", {})), **options)
        grace = timedelta(milliseconds=200)
        store = MongoStore(mongo_uri, database, [workload], collections=TENANT_COLLECTIONS, grace=grace)
        stack.push_async_callback(store.disconnect)
        broker = BullmqBroker(redis_url, prefix=prefix, keep_completed=0)
        stack.push_async_callback(broker.close)
        gateway = await stack.enter_async_context(with_parts(workload, store, broker, system_ambient()))
        yield await stack.enter_async_context(_client(gateway, server))


@asynccontextmanager
async def _client(gateway: Gateway, server: SmtpServer) -> AsyncIterator[EmailClient]:
    workload: Any = gateway.workload
    limits = RequestLimits(ttl=workload.ttl)
    company = (await gateway.tenants.add("acme")).company_id
    await workload.start()
    try:
        yield EmailClient(
            gateway=gateway,
            workload=workload,
            server=server,
            admission=EmailAdmission(workload, gateway.store, VAULT, limits=limits),
            suppressions=Suppressions(gateway.store, VAULT),
            company=company,
        )
        await gateway.intake.drain()
    finally:
        await workload.stop()
