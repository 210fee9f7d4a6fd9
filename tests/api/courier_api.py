"""The API over the real engine and a real SQLite file, for tests."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast import Collection, Done, ExponentialBackoff, Workload
from holdfast.api import ApiOptions, ApiServices
from holdfast.api.app import Gateway as Api
from holdfast.api.app import create_app
from holdfast.api.frame import FeatureApi, Frame
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.contracts.dead_letters import letter_id
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ledger import Claimed, Lease
from holdfast.contracts.ports import Ambient
from holdfast.contracts.times import isoformat
from holdfast.contracts.transitions import MoveToDeadLetters, Settlement, Transition
from holdfast.feature import Opened, Services
from holdfast.features.courier.feature import CourierFeature, CourierService
from holdfast.features.courier.settings import CourierSettings
from holdfast.features.courier.signatures import sign
from holdfast.features.courier.workload import Courier
from holdfast.stores.sqlite import SqliteStore
from tests.support.clock import SettableClock
from tests.support.gateway import Gateway, assembled
from tests.support.settings import Settings

COURIER = "/v1/events/courier"
SECRET = "a secret of courier-x"
OLDER_SECRET = "an older secret of courier-x"
OTHER_SECRET = "the secret of courier-y"
SECRETS = {"courier-x": [SECRET, OLDER_SECRET], "courier-y": OTHER_SECRET}
TOKEN = "operators only, please"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}

_numbers = count(1)


class InvoiceLine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=50)
    cents: int = Field(ge=0)


class Invoice(BaseModel):
    """A user's own contract. The message of one rule repeats the value."""

    model_config = ConfigDict(extra="forbid")

    number: str = Field(min_length=1, max_length=50)
    issued_at: datetime
    lines: list[InvoiceLine] = Field(default_factory=list, max_length=10)
    customer: str = "nobody"

    @model_validator(mode="after")
    def _not_this_one(self) -> Invoice:
        if self.customer.startswith("forbidden"):
            message = f"We do not serve {self.customer}"
            raise ValueError(message)
        return self


class Invoices(Workload[Invoice]):
    name = "invoices"
    contract = Invoice
    queue = "invoices-main"
    dead_letter_queue = "invoices-dead"
    retry = ExponentialBackoff(max_attempts=3)
    indexed_labels = ("customer", "companyId")
    collections = (Collection("invoice_records", key="number", indexes=(("customer",), ("cents",))),)

    def key(self, data: Invoice) -> str:
        return f"invoice/{data.number}"

    def labels(self, data: Invoice) -> dict[str, str]:
        return {"customer": data.customer}

    async def handle(self, job, context):
        return Done()


class Errand(BaseModel):
    """Another contract of the user."""

    model_config = ConfigDict(extra="forbid")

    errand: str = Field(min_length=1, max_length=50)
    shop: str = "corner"
    note: str = ""


class Errands(Workload[Errand]):
    """Errands expire, take turns by shop, can be stopped, and have job ids and labels that a sender chooses."""

    name = "errands"
    contract = Errand
    queue = "errands-main"
    dead_letter_queue = "errands-dead"
    ttl = timedelta(hours=1)
    stoppable = True
    indexed_labels = ("companyId",)
    version = 2
    upcasts: ClassVar = {1: lambda old: {"errand": old["task"]}}

    def key(self, data: Errand) -> str:
        return data.errand

    def job_id(self, key: str, data: Errand) -> str:
        return f"errand-{data.errand}"

    def labels(self, data: Errand) -> dict[str, str]:
        return {"companyId": data.shop}

    def fairness_key(self, data: Errand) -> str:
        return data.shop

    async def handle(self, job, context):
        return Done()


class AwayBroker(SqliteBroker):
    """The queue's server is down."""

    async def publish(self, queue, jobs) -> None:
        raise BrokerUnavailable

    async def ping(self) -> None:
        raise BrokerUnavailable


class AwayStore(SqliteStore):
    """The disk is full."""

    async def record(self, entries):
        message = "disk /secret/path is full"
        raise StoreUnavailable(message)

    async def entry(self, workload, key):
        message = "disk /secret/path is full"
        raise StoreUnavailable(message)

    async def ping(self) -> None:
        message = "disk /secret/path is full"
        raise StoreUnavailable(message)


@dataclass(frozen=True)
class CourierApi:
    """A courier and an operator at the API of a gateway with the courier workload and a user's own."""

    gateway: Gateway
    client: httpx.AsyncClient
    options: ApiOptions
    shortcuts: bool = False

    @property
    def services(self) -> ApiServices:
        return self.gateway.services

    @property
    def clock(self) -> SettableClock:
        return self.gateway.clock

    def with_services(self, **changes: Any) -> httpx.AsyncClient:
        """A client of an API that has other services."""
        return _client(replace(self.services, **changes), self.options, shortcuts=self.shortcuts)

    async def push(self, event: Any, **how: Any) -> httpx.Response:
        """Post a signed event."""
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        headers = signed(body, now=self.clock.now(), **how)
        return await self.client.post(COURIER, content=body, headers=headers)

    async def key_of(self, name: str, *scopes: str) -> dict[str, str]:
        """The headers of a tenant with this name, which is made if it is not there, and a new key for these scopes."""
        tenants = self.services.tenants
        known = [each for each in await tenants.everyone() if each.name == name]
        company_id = (known[0] if known else await tenants.add(name)).company_id
        _, text = await tenants.create_key(company_id, scopes=scopes or None)
        return {"authorization": f"Bearer {text}"}

    async def settle(self, workload: str, key: str, transition: Transition) -> None:
        """Do the work of a worker: claim the job and settle it."""
        entry = await self.services.store.entry(workload, key)
        assert entry is not None
        claims = await self.services.store.claim(
            workload, [entry.job_id], worker="tests", lease=timedelta(seconds=30), max_attempts=5
        )
        claim = claims[0]
        assert isinstance(claim, Claimed), claim
        settlement = Settlement(workload, Lease(claim.job_id, claim.fence), transition)
        settled = await self.services.store.settle([settlement])
        assert settled[0].status is not None

    async def dead_letter(self, event: Mapping[str, Any], reason_code: str = "DOWNSTREAM_TIMEOUT_EXHAUSTED") -> str:
        """Push an event and let it fail for good; returns the id of its dead letter."""
        pushed = await self.push(event)
        assert pushed.status_code == 202, pushed.text
        key = pushed.json()["idempotencyKey"]
        letter = letter_id("courier", key, 1)
        await self.settle(
            "courier",
            key,
            MoveToDeadLetters(
                letter_id=letter,
                code="TIMEOUT",
                message="No answer.",
                reason_code=reason_code,
                reason_message="Retries exhausted after transient timeouts",
                retention=timedelta(days=30),
                letter_retention=timedelta(days=90),
            ),
        )
        return letter


def event(**changes: Any) -> dict[str, Any]:
    """A new event that happened now."""
    number = next(_numbers)
    facts = {"shipmentId": f"shp_{number}", "orderId": "ord_789", "status": "out_for_delivery"}
    return {
        "eventId": f"evt_{number}",
        "eventType": "shipment.status.updated",
        "occurredAt": isoformat(datetime.now(UTC)),
        "source": "courier-x",
        "payload": facts | changes.pop("payload", {}),
    } | changes


def signed(body: bytes, *, secret: str = SECRET, now: datetime | None = None, **headers: str) -> dict[str, str]:
    """The headers of our own signature scheme."""
    timestamp = int((now or datetime.now(UTC)).timestamp())
    return {
        "content-type": "application/json",
        "x-signature": sign(secret, timestamp, body),
        "x-signature-timestamp": str(timestamp),
        "x-signature-algorithm": "hmac-sha256",
    } | {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def courier_api(folder: Path, *, shortcuts: bool = False) -> AsyncIterator[CourierApi]:
    """``shortcuts``: requests in the usual form take the way past ASGI, as in our own server."""
    options = ApiOptions(operator_token=TOKEN)
    parts = assembled(Courier(), folder / "holdfast.db", others=[Invoices(), Errands()], clock=SettableClock())
    async with parts as gateway, _client(gateway.services, options, shortcuts=shortcuts) as client:
        yield CourierApi(gateway, client, options, shortcuts)


def feature_services(services: ApiServices, settings: Settings | None = None) -> Services:
    """What the process gives to its features, over the same engine as the API."""
    ambient = Ambient(services.clock, services.ids, random.Random(1))
    made = Services(settings or Settings(), ambient)
    made.opened(
        Opened(
            services.store,
            services.broker,
            services.intake,
            services.cancellation,
            services.tenants,
            services.limits,
        )
    )
    return made


def app_of(services: ApiServices, options: ApiOptions, secrets: Mapping[str, Any] = SECRETS) -> Api:
    """The API with the courier's routes. ``secrets`` are the couriers'."""
    courier = services.workloads["courier"]
    service = CourierService(courier, CourierSettings(courier_secrets=secrets), feature_services(services))
    frame = Frame(service.services, options)
    feature = FeatureApi(intakes=CourierFeature.intakes, routes=service.routes(frame), refusal="not set up")
    return create_app(services, options, [feature])


class ShortcutTransport(httpx.AsyncBaseTransport):
    """Gives a request to the shortcut of its path, if it has one; otherwise to the app."""

    def __init__(self, app: Api) -> None:
        self._shortcuts = app.shortcuts
        self._asgi = httpx.ASGITransport(app=app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        shortcut = self._shortcuts.get(request.url.raw_path) if request.method == "POST" else None
        body = await request.aread()
        if shortcut is None or len(body) > shortcut.most_bytes or "content-length" not in request.headers:
            return await self._asgi.handle_async_request(request)
        answered = asyncio.get_running_loop().create_future()

        def reply(status, body, trace_id, headers=()) -> None:
            own = [(b"content-type", b"application/json"), (b"x-request-id", trace_id.encode())]
            answered.set_result(httpx.Response(status, headers=[*own, *headers], content=body))

        shortcut.take([(name.lower(), value) for name, value in request.headers.raw], body, reply)
        return await answered


def _client(services: ApiServices, options: ApiOptions, *, shortcuts: bool = False) -> httpx.AsyncClient:
    app = app_of(services, options)
    transport = ShortcutTransport(app) if shortcuts else httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://holdfast.test")
