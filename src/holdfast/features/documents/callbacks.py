"""Callbacks: the result of a document is sent, signed, to the address that its sender gave, until it is accepted.

Delivery is at least once. ``webhook-id`` is the same in every attempt and replay, so the receiver can recognise a
duplicate. The address comes from outside, so it is checked by the rules for fetched files. No redirect is followed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final

import httpcore
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.network_failures import (
    THROTTLED,
    TIMEOUT,
    answer_code,
    answer_may_pass,
    retry_after,
    wait_asked_by,
)
from holdfast.contracts.outcomes import Done, Outcome, Reject, Retry
from holdfast.contracts.retry import ExponentialBackoff, RetryPolicy
from holdfast.contracts.standard_webhooks import signed_headers, signing_key
from holdfast.contracts.validation import described
from holdfast.contracts.workload import Context, Job, Workload, readable_body

from .contract import JOB_ID
from .fetching.addresses import AddressBlocked, AddressPolicy, web_address
from .fetching.backend import Resolver, VettedClient, code_of, header, resolved

BLOCKED: Final = "ADDRESS_BLOCKED"

_CALLBACK_ID: Final = described(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,159}$",
    "must be 1 to 160 letters, digits, dots, dashes and underscores, and begin with a letter or a digit",
)
_NOT_SENDING: Final = timedelta(seconds=5)


class CallbackJob(BaseModel):
    """One result to be sent. ``body`` is the JSON that is sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    callback_id: str = Field(pattern=_CALLBACK_ID)
    url: Annotated[str, Field(min_length=1, max_length=2_000, repr=False)]  # may hold the receiver's secrets
    job_id: str = Field(pattern=JOB_ID)
    company_id: str | None = Field(default=None, max_length=128)
    body: dict[str, JsonValue] = Field(repr=False)


def callback_id(job_id: str) -> str:
    """The id of the callback that a finished job sends."""
    return f"{job_id}.done"


def _retry() -> ExponentialBackoff:
    return ExponentialBackoff(max_attempts=8, base=timedelta(seconds=5))


@dataclass(frozen=True, slots=True)
class CallbackOptions:
    """The operator's settings. ``timeout`` is for one whole exchange.

    ``resolve`` and ``tls`` replace the system's DNS and its certificate authorities.
    """

    secret: str = field(repr=False)
    policy: AddressPolicy = field(default_factory=AddressPolicy)
    timeout: timedelta = timedelta(seconds=10)
    connect_timeout: timedelta = timedelta(seconds=5)
    retry: RetryPolicy = field(default_factory=_retry)
    retention: timedelta = timedelta(days=7)
    letter_retention: timedelta = timedelta(days=7)
    concurrency: int = 20
    resolve: Resolver = field(default=resolved, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not signing_key(self.secret):
            message = "The secret that signs callbacks is empty, or what follows whsec_ is not base64."
            raise ConfigurationError(message)


class DocumentCallbacks(Workload[CallbackJob]):
    """Sends results to the senders that gave a callback address. One callback id: one result, sent until accepted."""

    name: ClassVar[str] = "document_callbacks"
    contract = CallbackJob
    queue = "doc_callbacks"
    dead_letter_queue = "doc_callbacks_dead"
    ledger_name = "document_callbacks"
    letters_name = "document_callback_dead_letters"
    indexed_labels: Sequence[str] = ("job_id",)
    label_columns: Sequence[str] = ("job_id", "company_id")

    def __init__(self, options: CallbackOptions, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.retry = options.retry
        self.timeout = options.timeout + _NOT_SENDING
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        self.concurrency = options.concurrency
        self._key = signing_key(options.secret)
        self._limit = options.timeout
        self._client = VettedClient(options.policy, options.connect_timeout, resolve=options.resolve, tls=options.tls)
        self._now = now

    # --- the job's identity -----------------------------------------------------------------------------------

    def key(self, data: CallbackJob) -> str:
        """The callback id."""
        return data.callback_id

    def labels(self, data: CallbackJob) -> dict[str, str]:
        """The job whose result is sent, and the tenant of that job."""
        labels = {"job_id": data.job_id}
        if data.company_id is not None:
            labels["company_id"] = data.company_id
        return labels

    def fairness_key(self, data: CallbackJob) -> str | None:
        """Tenants take turns: a receiver that does not answer holds up its own tenant's callbacks only."""
        return data.company_id

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make the client ready."""
        await self._client.open()

    async def stop(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def handle(self, job: Job[CallbackJob], context: Context) -> Outcome:
        """Send the result. The status of the answer alone decides the outcome."""
        del context
        try:
            async with asyncio.timeout(self._limit.total_seconds()):
                return await self._sent(job.data)
        except AddressBlocked as error:
            return Reject(BLOCKED, f"The callback was not sent. {error}")
        except (TimeoutError, httpcore.TimeoutException):
            return Retry(TIMEOUT, f"The callback's receiver did not answer within {self._limit.total_seconds():g} s.")
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            code = code_of(error)
            return Retry(code, f"The callback's receiver could not be reached ({code}).")

    async def _sent(self, data: CallbackJob) -> Outcome:
        url = web_address(data.url)
        body = json.dumps(data.body, separators=(",", ":")).encode()
        headers = {
            "content-type": "application/json",
            **signed_headers(self._key, data.callback_id, int(self._now().timestamp()), body),
        }
        async with self._client.exchange("POST", url, headers, body) as response:
            return outcome_of_answer(response.status, retry_after(header(response, "retry-after"), self._now()))

    # --- the wire ---------------------------------------------------------------------------------------------

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """Without the path and the query of the address: receivers put their secrets there."""
        document = readable_body(body)
        if isinstance(document, dict) and "url" in document:
            return document | {"url": _shown(document["url"])}
        return document

    def letter_body(self, body: str) -> str:
        """Likewise: a dead letter is for reading, and a replay runs what the ledger holds."""
        return json.dumps(self.readable(body), ensure_ascii=False, separators=(",", ":"))


def outcome_of_answer(status: int, after: timedelta | None) -> Outcome:
    """What an answer means for the callback. ``after`` is the wait that it asked for."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Done(result={"status": status})
    after = after if wait_asked_by(status) else None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Retry(THROTTLED, "The callback's receiver asked us to slow down (429).", after)
    if answer_may_pass(status):
        return Retry(answer_code(status), f"The callback's receiver answered {status}.", after)
    return Reject(answer_code(status), f"The callback's receiver refused it ({status}).")


def _shown(url: object) -> str:
    """Scheme and host of the address, without path and query."""
    try:
        address = web_address(str(url))
    except AddressBlocked:
        return "***"
    return f"{address.scheme}://{address.netloc.decode('ascii')}/***"
