"""The optional downstream: every event is signed and forwarded before it is applied here.

Delivery is at least once: if a worker crashes between the downstream's answer and our commit, the event is sent again.
So each request has the event's idempotency key in ``webhook-id`` and ``Idempotency-Key``, also in retries and replays.
Late events are forwarded too: the downstream may use another order than we do.

Requests follow Standard Webhooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final

import httpx

from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.network_failures import (
    THROTTLED,
    TIMEOUT,
    answer_code,
    answer_may_pass,
    network_code,
    retry_after,
    wait_asked_by,
)
from holdfast.contracts.outcomes import Reject, Retry
from holdfast.contracts.standard_webhooks import signed_headers, signing_key

from .contract import CourierEvent

_MAX_DRAINED: Final = 64 * 1024
_DRAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The part of a response that decides the outcome. The body is not used."""

    status: int
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class DownstreamOptions:
    """The settings of the downstream. ``connections`` is the largest number of requests at the same time."""

    url: str = field(repr=False)  # may hold credentials
    secret: str = field(repr=False)
    timeout: timedelta
    connections: int

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in {"http", "https"} or not url.host:
            message = "COURIER_DOWNSTREAM_URL must be an http:// or https:// address."
            raise ConfigurationError(message)
        _key(self.secret)


def _key(secret: str) -> bytes:
    """The key of the signature."""
    if not secret:
        message = "COURIER_DOWNSTREAM_URL needs COURIER_DOWNSTREAM_SECRET, which signs what is forwarded."
        raise ConfigurationError(message)
    key = signing_key(secret)
    if not key:
        message = "COURIER_DOWNSTREAM_SECRET starts with whsec_, but what follows is not base64."
        raise ConfigurationError(message)
    return key


class Downstream:
    """A client of the downstream. Errors of the other side are returned as outcomes, not raised."""

    def __init__(self, options: DownstreamOptions, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._options = options
        self._key = _key(options.secret)
        self._now = now
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Make the connection pool. Connections are opened by the requests that need them."""
        connections = self._options.connections
        self._client = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # noqa: S113 - each exchange has a limit of its own, in _post
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            headers={"user-agent": "holdfast", "content-type": "application/json"},
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def forward(self, event: CourierEvent) -> Retry | Reject | None:
        """Send one event. None: the downstream accepted it."""
        try:
            answer = await self._post(event)
        except (TimeoutError, httpx.TimeoutException):
            return Retry(TIMEOUT, f"The downstream did not answer within {self._options.timeout.total_seconds():g} s.")
        except httpx.HTTPError as error:
            broken_off = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
            code = network_code(error, broken_off=broken_off)
            return Retry(code, f"The downstream could not be reached ({code}).")
        return outcome_of_answer(answer)

    async def _post(self, event: CourierEvent) -> Answer:
        if self._client is None:
            message = "Downstream.open() has not been called."
            raise RuntimeError(message)
        body = event.model_dump_json().encode()
        headers = self._headers(event, body)
        request = self._client.build_request("POST", self._options.url, content=body, headers=headers)
        # httpx limits each read. This limits all reads together: a very slow answer must not hold its slot for ever.
        deadline = asyncio.get_running_loop().time() + self._options.timeout.total_seconds()
        async with asyncio.timeout_at(deadline):
            response = await self._client.send(request, stream=True)
        try:
            await _drain(response, deadline)
        finally:
            await response.aclose()
        return Answer(response.status_code, retry_after(response.headers.get("retry-after"), self._now()))

    def _headers(self, event: CourierEvent, body: bytes) -> dict[str, str]:
        return {
            **signed_headers(self._key, event.idempotencyKey, int(self._now().timestamp()), body),
            "idempotency-key": event.idempotencyKey,
            "x-request-id": event.traceId,
        }


async def _drain(response: httpx.Response, deadline: float) -> None:
    """Read a short body to its end, so that the connection can be used again.

    The status is known already, and nothing here changes it. After a long or slow body, the connection is closed.
    """
    read = 0
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + _DRAIN_SECONDS)):
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read > _MAX_DRAINED:
                    break


def outcome_of_answer(answer: Answer) -> Retry | Reject | None:
    """The outcome of the job for an answer. None: delivered."""
    status = answer.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    after = answer.retry_after if wait_asked_by(status) else None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Retry(THROTTLED, "The downstream asked us to slow down (429).", after)
    if answer_may_pass(status):
        return Retry(answer_code(status), f"The downstream answered {status}.", after)
    return Reject(answer_code(status), f"The downstream refused the event ({status}).")
