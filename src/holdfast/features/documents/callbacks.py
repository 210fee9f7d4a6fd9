"""Callbacks: the result of a document is sent, signed, to the address that its sender gave, until it is accepted.

The address comes from outside, so it is checked by the rules for fetched files: see :mod:`holdfast.webhooks`.

Each tenant has a secret that signs its callbacks. A tenant's secret is an HMAC of random bytes, which the tenant's
record keeps, with ``DOCUMENT_CALLBACK_SECRET`` as the key. So the database alone does not reveal a secret. A tenant
that knows ``DOCUMENT_CALLBACK_SECRET``, because it had no secret of its own before, cannot make the secret of another
tenant either.

``tenants`` gets these fields: callbackSalt, formerCallbackSalt (null: ``DOCUMENT_CALLBACK_SECRET`` itself was used),
formerCallbackUntil.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from holdfast import (
    ConfigurationError,
    Context,
    ExponentialBackoff,
    Job,
    NotFound,
    Outcome,
    RetryPolicy,
    Upsert,
    Workload,
    described,
    isoformat,
    readable_body,
)
from holdfast.feature import TENANTS, Records
from holdfast.network import SECRET_PREFIX, signing_key
from holdfast.webhooks.addresses import AddressBlocked, AddressPolicy, web_address
from holdfast.webhooks.client import Client, Resolver, resolved
from holdfast.webhooks.sender import WebhookSender, Words

from .contract import JOB_ID

_PURPOSE: Final = b"holdfast/document-callbacks/v1"
_SALT_BYTES: Final = 32


class CallbackSecrets:
    """Makes the secrets of tenants from the operator's secret."""

    def __init__(self, secret: str) -> None:
        self._key = signing_key(secret)
        if not self._key:
            message = "The secret that signs callbacks is empty, or what follows whsec_ is not base64."
            raise ConfigurationError(message)

    def keys(self, tenant: Mapping[str, Any] | None, now: datetime) -> list[bytes]:
        """The keys that sign the callbacks of a tenant now, the newest first. ``tenant`` is its record, if any.

        After a rotation there are two keys for a while, so that the receiver has time to change its own.
        """
        tenant = tenant or {}
        salt, until = tenant.get("callbackSalt"), tenant.get("formerCallbackUntil")
        keys = [self._of(tenant.get("companyId"), salt)]
        if until is not None and isoformat(now) < until:
            keys.append(self._of(tenant.get("companyId"), tenant.get("formerCallbackSalt")))
        return keys

    async def rotate(self, store: Records, company_id: str, now: datetime, overlap: timedelta) -> str:
        """A new secret for a tenant. The former secret signs too, until ``overlap`` has passed.

        This is the only time that the secret is shown. Raises :class:`NotFound` for an unknown tenant.
        """
        tenant = await store.get(TENANTS, company_id)
        if tenant is None:
            raise NotFound
        salt = secrets.token_hex(_SALT_BYTES)
        changed = {
            "callbackSalt": salt,
            "formerCallbackSalt": tenant.get("callbackSalt"),
            "formerCallbackUntil": isoformat(now + overlap),
        }
        await store.apply([Upsert(TENANTS, company_id, changed)])
        return SECRET_PREFIX + base64.b64encode(self._of(company_id, salt)).decode()

    def _of(self, company_id: str | None, salt: str | None) -> bytes:
        """The key of a tenant; without a salt, the key of the operator's own secret."""
        if company_id is None or salt is None:
            return self._key
        said = b"\0".join((_PURPOSE, company_id.encode(), bytes.fromhex(salt)))
        return hmac.digest(self._key, said, hashlib.sha256)


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


def callback_id(key: str) -> str:
    """The id of the callback that a finished job sends. ``key`` is the key of the job."""
    return f"{key}.done"


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


class DocumentCallbacks(Workload[CallbackJob]):
    """Sends results to the senders that gave a callback address. One callback id: one result, sent until accepted."""

    name = "document_callbacks"
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
        client = Client(options.policy, options.connect_timeout, resolve=options.resolve, tls=options.tls)
        words = Words("The callback's receiver", "The callback")
        self.secrets = CallbackSecrets(options.secret)
        self._sender = WebhookSender(client, signing_key(options.secret), options.timeout, words, now)
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
        """Make the sender ready."""
        await self._sender.open()

    async def stop(self) -> None:
        """Close its connections."""
        await self._sender.close()

    async def handle(self, job: Job[CallbackJob], context: Context) -> Outcome:
        """Send the result, signed for its tenant. The status of the answer alone decides the outcome."""
        data = job.data
        tenant = None if data.company_id is None else await context.get(TENANTS, data.company_id)
        body = json.dumps(data.body, separators=(",", ":")).encode()
        keys = self.secrets.keys(tenant, self._now())
        return await self._sender.send(data.url, data.callback_id, body, keys=keys)

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


def _shown(url: object) -> str:
    """Scheme and host of the address, without path and query."""
    try:
        address = web_address(str(url))
    except AddressBlocked:
        return "***"
    return f"{address.scheme}://{address.netloc.decode('ascii')}/***"
