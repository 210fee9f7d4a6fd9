"""A client of Holdfast's API, blocking and with ``await``. It needs httpx and the standard library alone.

    with Client("http://127.0.0.1:8080", key="hf_...") as client:
        job = client.submit("issue_invoice", {"number": "2026-001", "customer": "ACME", "cents": 1299})
        pdf = client.result(job, timeout=30)

:class:`AsyncClient` has the same verbs. ``client.courier``, ``email``, ``documents``, ``dead_letters`` and
``schedules`` have those of the shipped workloads and of operators. A request that got no answer, or 429, 502, 503 or
504, is tried again (:class:`Retries`) with the same content and the same identity, so nothing is done twice.
``errors`` has the errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self

import httpx

from holdfast.contracts.times import Duration

from .courier import CourierVerbs
from .documents import DocumentVerbs
from .drivers import (
    LIMITS,
    AsyncDriver,
    AsyncPart,
    Driver,
    Part,
    async_iterating,
    awaiting,
    blocking,
    iterating,
    trust_env,
)
from .email import Email, EmailVerbs
from .errors import (
    Conflict,
    Forbidden,
    HoldfastClientError,
    InvalidContent,
    InvalidSignature,
    JobCancelled,
    JobError,
    JobExpired,
    JobFailed,
    NotFound,
    Problem,
    Refused,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from .exchange import Credentials, Exchange, Retries, Timing
from .jobs import JobVerbs
from .operators import DeadLetterVerbs, ScheduleVerbs
from .signatures import Webhook, sign, verify_webhook
from .views import (
    Attempt,
    Cancelled,
    DeadLetter,
    Decision,
    DocumentError,
    DocumentReceipt,
    DocumentResult,
    DocumentState,
    EmailReceipt,
    EmailState,
    EventReceipt,
    Job,
    JobState,
    Progress,
    ReplayReport,
    ScheduleState,
)

__all__ = [
    "AsyncClient",
    "Attempt",
    "Cancelled",
    "Client",
    "Conflict",
    "DeadLetter",
    "Decision",
    "DocumentError",
    "DocumentReceipt",
    "DocumentResult",
    "DocumentState",
    "Email",
    "EmailReceipt",
    "EmailState",
    "EventReceipt",
    "Forbidden",
    "HoldfastClientError",
    "InvalidContent",
    "InvalidSignature",
    "Job",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobState",
    "NotFound",
    "Problem",
    "Progress",
    "Refused",
    "ReplayReport",
    "Retries",
    "ScheduleState",
    "Timing",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "Webhook",
    "sign",
    "verify_webhook",
]


def _policy(retries: Retries | int) -> Retries:
    return retries if isinstance(retries, Retries) else Retries(retries)


class Client(Part[JobVerbs]):
    """A client that blocks. Many threads may use one.

    ``key`` is the API key of a tenant, ``token`` the operator token; with both, each verb uses the one that it needs.
    ``timeout`` is for one try, ``retries`` says how many tries follow. ``http`` is an ``httpx.Client`` of your own,
    which stays open, or a transport. ``timing`` and ``sleep`` are for tests.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = "10s",
        retries: Retries | int = 4,
        http: httpx.Client | httpx.BaseTransport | None = None,
        timing: Timing | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        exchange = Exchange(base_url, Credentials(key, token), timeout, _policy(retries), timing or Timing())
        self._own_http = not isinstance(http, httpx.Client)
        if not isinstance(http, httpx.Client):
            http = httpx.Client(transport=http, trust_env=trust_env(exchange.address), limits=LIMITS)
        super().__init__(JobVerbs(exchange), Driver(http, sleep))
        self.address = exchange.address
        self.courier = Courier(CourierVerbs(exchange), self._driver)
        self.email = Emails(EmailVerbs(exchange), self._driver)
        self.documents = Documents(DocumentVerbs(exchange), self._driver)
        self.dead_letters = DeadLetters(DeadLetterVerbs(exchange), self._driver)
        self.schedules = Schedules(ScheduleVerbs(exchange), self._driver)

    submit = blocking(JobVerbs.submit)
    submit_many = blocking(JobVerbs.submit_many)
    result = blocking(JobVerbs.result)
    job = blocking(JobVerbs.job)
    jobs = iterating(JobVerbs.jobs)
    cancel = blocking(JobVerbs.cancel)
    events = iterating(JobVerbs.events)
    record = blocking(JobVerbs.record)
    records = iterating(JobVerbs.records)

    def close(self) -> None:
        """Close the connections; not those of an ``httpx.Client`` of your own."""
        if self._own_http:
            self._driver.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"


class Courier(Part[CourierVerbs]):
    """``client.courier``."""

    send = blocking(CourierVerbs.send)
    event = blocking(CourierVerbs.event)
    shipment = blocking(CourierVerbs.shipment)


class Emails(Part[EmailVerbs]):
    """``client.email``."""

    send = blocking(EmailVerbs.send)
    send_many = blocking(EmailVerbs.send_many)
    list = iterating(EmailVerbs.list)
    show = blocking(EmailVerbs.show)
    cancel = blocking(EmailVerbs.cancel)


class Documents(Part[DocumentVerbs]):
    """``client.documents``."""

    submit = blocking(DocumentVerbs.submit)
    wait = blocking(DocumentVerbs.wait)
    result = blocking(DocumentVerbs.result)
    text = blocking(DocumentVerbs.text)
    show = blocking(DocumentVerbs.show)
    list = iterating(DocumentVerbs.list)
    events = iterating(DocumentVerbs.events)
    cancel = blocking(DocumentVerbs.cancel)


class DeadLetters(Part[DeadLetterVerbs]):
    """``client.dead_letters``."""

    list = iterating(DeadLetterVerbs.list)
    show = blocking(DeadLetterVerbs.show)
    review = blocking(DeadLetterVerbs.review)
    replay = blocking(DeadLetterVerbs.replay)
    replay_where = blocking(DeadLetterVerbs.replay_where)
    close = blocking(DeadLetterVerbs.close)


class Schedules(Part[ScheduleVerbs]):
    """``client.schedules``."""

    list = iterating(ScheduleVerbs.list)
    show = blocking(ScheduleVerbs.show)
    run = blocking(ScheduleVerbs.run)
    pause = blocking(ScheduleVerbs.pause)
    resume = blocking(ScheduleVerbs.resume)


class AsyncClient(AsyncPart[JobVerbs]):
    """The same as :class:`Client`, with ``await`` and ``async for``."""

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = "10s",
        retries: Retries | int = 4,
        http: httpx.AsyncClient | httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        exchange = Exchange(base_url, Credentials(key, token), timeout, _policy(retries), timing or Timing())
        self._own_http = not isinstance(http, httpx.AsyncClient)
        if not isinstance(http, httpx.AsyncClient):
            http = httpx.AsyncClient(transport=http, trust_env=trust_env(exchange.address), limits=LIMITS)
        super().__init__(JobVerbs(exchange), AsyncDriver(http, sleep))
        self.address = exchange.address
        self.courier = AsyncCourier(CourierVerbs(exchange), self._driver)
        self.email = AsyncEmails(EmailVerbs(exchange), self._driver)
        self.documents = AsyncDocuments(DocumentVerbs(exchange), self._driver)
        self.dead_letters = AsyncDeadLetters(DeadLetterVerbs(exchange), self._driver)
        self.schedules = AsyncSchedules(ScheduleVerbs(exchange), self._driver)

    submit = awaiting(JobVerbs.submit)
    submit_many = awaiting(JobVerbs.submit_many)
    result = awaiting(JobVerbs.result)
    job = awaiting(JobVerbs.job)
    jobs = async_iterating(JobVerbs.jobs)
    cancel = awaiting(JobVerbs.cancel)
    events = async_iterating(JobVerbs.events)
    record = awaiting(JobVerbs.record)
    records = async_iterating(JobVerbs.records)

    async def close(self) -> None:
        """Close the connections; not those of an ``httpx.AsyncClient`` of your own."""
        if self._own_http:
            await self._driver.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.address!r})"


class AsyncCourier(AsyncPart[CourierVerbs]):
    """``client.courier``."""

    send = awaiting(CourierVerbs.send)
    event = awaiting(CourierVerbs.event)
    shipment = awaiting(CourierVerbs.shipment)


class AsyncEmails(AsyncPart[EmailVerbs]):
    """``client.email``."""

    send = awaiting(EmailVerbs.send)
    send_many = awaiting(EmailVerbs.send_many)
    list = async_iterating(EmailVerbs.list)
    show = awaiting(EmailVerbs.show)
    cancel = awaiting(EmailVerbs.cancel)


class AsyncDocuments(AsyncPart[DocumentVerbs]):
    """``client.documents``."""

    submit = awaiting(DocumentVerbs.submit)
    wait = awaiting(DocumentVerbs.wait)
    result = awaiting(DocumentVerbs.result)
    text = awaiting(DocumentVerbs.text)
    show = awaiting(DocumentVerbs.show)
    list = async_iterating(DocumentVerbs.list)
    events = async_iterating(DocumentVerbs.events)
    cancel = awaiting(DocumentVerbs.cancel)


class AsyncDeadLetters(AsyncPart[DeadLetterVerbs]):
    """``client.dead_letters``."""

    list = async_iterating(DeadLetterVerbs.list)
    show = awaiting(DeadLetterVerbs.show)
    review = awaiting(DeadLetterVerbs.review)
    replay = awaiting(DeadLetterVerbs.replay)
    replay_where = awaiting(DeadLetterVerbs.replay_where)
    close = awaiting(DeadLetterVerbs.close)


class AsyncSchedules(AsyncPart[ScheduleVerbs]):
    """``client.schedules``."""

    list = async_iterating(ScheduleVerbs.list)
    show = awaiting(ScheduleVerbs.show)
    run = awaiting(ScheduleVerbs.run)
    pause = awaiting(ScheduleVerbs.pause)
    resume = awaiting(ScheduleVerbs.resume)
