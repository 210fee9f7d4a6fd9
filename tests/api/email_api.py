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

from holdfast.api import ApiOptions, ApiServices
from holdfast.api.app import create_app
from holdfast.api.frame import FeatureApi, Frame
from holdfast.contracts.times import isoformat
from holdfast.engine.tenants import Tenants
from holdfast.features.email.feature import EmailFeature, EmailService, Scope
from holdfast.features.email.keys import EmailSecrets
from holdfast.features.email.mime import Sender
from holdfast.features.email.suppression import Suppressions
from holdfast.features.email.transports.folder import FolderTransport
from holdfast.features.email.vault import Vault
from holdfast.features.email.workload import Email, EmailOptions
from tests.api.courier_api import TOKEN, feature_services
from tests.support.clock import SettableClock
from tests.support.gateway import Gateway, assembled
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
class EmailApi:
    """Tenants at the email routes of a gateway."""

    gateway: Gateway
    client: httpx.AsyncClient
    email: EmailService
    tenants: Tenants
    feedback: StubFeedback
    keys: Mapping[str, str]
    """API keys: ``acme`` and ``other`` may do everything."""
    ids: Mapping[str, str]

    @property
    def services(self) -> ApiServices:
        return self.gateway.services

    @property
    def clock(self) -> SettableClock:
        return self.gateway.clock

    @property
    def store(self) -> Any:
        return self.gateway.store

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


def in_an_hour(api: EmailApi) -> str:
    return isoformat(api.clock.now() + timedelta(hours=1))


@asynccontextmanager
async def email_api(folder: Path, **changes: Any) -> AsyncIterator[EmailApi]:
    """``content`` is the blob store of the HTML."""
    content = changes.get("content")
    workload = Email(OPTIONS, VAULT, FolderTransport(folder / "mail"), content)
    async with assembled(workload, folder / "holdfast.db", clock=SettableClock(), outbox=True) as gateway:
        settings = Settings(holdfast_data=folder, max_body_bytes=20_000, email_max_html_bytes=10_000)
        secrets = EmailSecrets(bytes(range(32)), {"first": bytes(range(100, 132))}, "first")
        service = EmailService(settings, feature_services(gateway.services, settings), secrets)
        feedback = StubFeedback()
        service.vault, service.workload, service.content, service.feedback = VAULT, workload, content, feedback
        tenants = service.services.tenants
        keys, ids = {}, {}
        for name in ("acme", "other"):
            tenant = await tenants.add(name)
            ids[name] = tenant.company_id
            _, keys[name] = await tenants.create_key(tenant.company_id)
        _, keys["reads only"] = await tenants.create_key(ids["acme"], scopes=[Scope.EMAIL_READ])
        options = ApiOptions(operator_token=TOKEN)
        feature = FeatureApi(intakes=EmailFeature.intakes, routes=service.routes(Frame(service.services, options)))
        transport = httpx.ASGITransport(app=create_app(gateway.services, options, [feature]))
        async with httpx.AsyncClient(transport=transport, base_url="http://holdfast.test") as client:
            yield EmailApi(gateway, client, service, tenants, feedback, keys, ids)
        await asyncio.sleep(0)
