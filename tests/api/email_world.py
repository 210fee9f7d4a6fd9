"""The email routes over the real engine, the real workload and a real SQLite file, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from holdfast.api.app import create_app
from holdfast.api.frame import FeatureApi, Frame
from holdfast.api.services import ApiOptions, ApiServices
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.tenants import TENANT_COLLECTIONS
from holdfast.contracts.times import isoformat
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review
from holdfast.engine.tenants import Tenants
from holdfast.features.email.feature import EmailFeature, EmailService, Scope
from holdfast.features.email.keys import EmailSecrets
from holdfast.features.email.mime import Sender
from holdfast.features.email.suppression import Suppressions
from holdfast.features.email.transports.folder import FolderTransport
from holdfast.features.email.vault import Vault
from holdfast.features.email.workload import Email, EmailOptions
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from tests.api.world import TOKEN, CountingIds, SettableClock, feature_services
from tests.support.settings import Settings

SEND = "/v1/email/send"
BATCH = "/v1/email/batch"
LIST = "/v1/email"
EVENTS = "/v1/email/events/ses"

CPF = "529.982.247-25"
CPF_DIGITS = "52998224725"
VAULT = Vault(bytes(range(32)), {"first": bytes(range(100, 132))}, "first")
OPTIONS = EmailOptions(sender=Sender("mail@example.com"), domain="example.com")

_numbers = count(1)


class StubFeedback:
    """Replaces the check of SNS notifications, which has its own tests."""

    def __init__(self) -> None:
        self.received: list[object] = []
        self.answer: int | Exception = 0

    async def receive(self, body, now) -> int:
        self.received.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass(frozen=True)
class EmailWorld:
    client: httpx.AsyncClient
    services: ApiServices
    email: EmailService
    tenants: Tenants
    clock: SettableClock
    feedback: StubFeedback
    keys: Mapping[str, str]
    """API keys: ``acme`` and ``other`` may do everything."""
    ids: Mapping[str, str]

    @property
    def store(self) -> SqliteStore:
        return self.services.store

    @property
    def suppressions(self) -> Suppressions:
        return Suppressions(self.store, VAULT)

    def bearer(self, name: str = "acme") -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}

    async def send(self, body: Any, *, who: str = "acme", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(SEND, json=body, headers=self.bearer(who) | named)

    async def send_batch(self, emails: list[Any], *, who: str = "acme") -> httpx.Response:
        return await self.client.post(BATCH, json={"emails": emails}, headers=self.bearer(who))

    async def get(self, path: str, *, who: str = "acme", **query: Any) -> httpx.Response:
        return await self.client.get(path, params=query, headers=self.bearer(who))

    async def cancel(self, outbox_id: str, *, who: str = "acme") -> httpx.Response:
        return await self.client.post(f"{LIST}/{outbox_id}/cancel", headers=self.bearer(who))


def an_email(**changes: Any) -> dict[str, Any]:
    """A new email. A change to None removes the field."""
    number = next(_numbers)
    body = {
        "to": f"cliente{number}@example.com",
        "subject": "Seu boleto está disponível",
        "html": f"<p>Boleto {number}</p>",
        "recipient": {"externalId": f"CUST-{number}"},
    } | changes
    return {name: value for name, value in body.items() if value is not None}


def in_an_hour(world: EmailWorld) -> str:
    return isoformat(world.clock.now() + timedelta(hours=1))


@asynccontextmanager
async def an_email_world(folder: Path, **changes: Any) -> AsyncIterator[EmailWorld]:
    """``content`` is the blob store of the HTML."""
    database = Database(folder / "holdfast.db")
    content = changes.get("content")
    email = Email(OPTIONS, VAULT, FolderTransport(folder / "mail"), content)
    workloads = {email.name: email}
    broker = SqliteBroker(database)
    store = SqliteStore(database, [email], outbox=broker, collections=TENANT_COLLECTIONS)
    await store.open()
    await broker.open()
    clock, feedback = SettableClock(), StubFeedback()
    services = ApiServices(
        store=store,
        broker=broker,
        intake=Intake(store, broker),
        review=Review(store, broker, workloads),
        clock=clock,
        ids=CountingIds(),
        workloads=workloads,
    )
    settings = Settings(
        holdfast_data=folder, max_body_bytes=20_000, email_max_html_bytes=10_000, email_max_batch_bytes=1_000_000
    )
    secrets = EmailSecrets(bytes(range(32)), {"first": bytes(range(100, 132))}, "first")
    service = EmailService(settings, feature_services(services, settings), secrets)
    service.vault, service.workload, service.content, service.feedback = VAULT, email, content, feedback
    tenants = service.services.tenants
    keys, ids = {}, {}
    for name in ("acme", "other"):
        tenant = await tenants.add(name)
        ids[name] = tenant.company_id
        _, keys[name] = await tenants.create_key(tenant.company_id)
    _, keys["reads only"] = await tenants.create_key(ids["acme"], scopes=[Scope.EMAIL_READ])
    options = ApiOptions(operator_token=TOKEN)
    feature = FeatureApi(intakes=EmailFeature.intakes, routes=service.routes(Frame(service.services, options)))
    transport = httpx.ASGITransport(app=create_app(services, options, [feature]))
    async with httpx.AsyncClient(transport=transport, base_url="http://holdfast.test") as client:
        yield EmailWorld(client, services, service, tenants, clock, feedback, keys, ids)
        await services.intake.drain()
    await asyncio.sleep(0)
    await database.close()
