"""The records of the email workload: collections, keys and indexes.

No record has an address, a name or a tax number in clear (I14). Addresses are masked (``to``) and hashed with a key
(``toHash``, ``emailHash``). Values that must be readable again are sealed (``...Sealed``). Tenants and their keys
belong to all workloads: see :mod:`holdfast.contracts.tenants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from holdfast import Collection

_HASH_SHOWN: Final = 8

OUTBOX: Final = "email_outbox"
LOG: Final = "email_log"
RECIPIENTS: Final = "recipients"
CONTENT: Final = "email_content"
SUPPRESSIONS: Final = "email_suppressions"


class EmailStatus(StrEnum):
    """The status of an email."""

    PENDING = "PENDING"
    ENQUEUED = "ENQUEUED"
    SENDING = "SENDING"
    SENT = "SENT"
    RETRYING = "RETRYING"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """Whether nothing more happens to the email, unless a person replays it."""
        return self in {EmailStatus.SENT, EmailStatus.FAILED, EmailStatus.EXPIRED, EmailStatus.CANCELLED}


class SuppressionReason(StrEnum):
    """Why an address gets no more emails."""

    BOUNCE = "BOUNCE"
    COMPLAINT = "COMPLAINT"
    MANUAL = "MANUAL"


OUTBOX_COLLECTION: Final = Collection(
    OUTBOX,
    key="outboxId",
    indexes=(
        # A tenant's list, newest first. The key is at the end, so that a page is one range of the index.
        ("companyId", "enqueuedAt", "outboxId"),
        ("companyId", "status", "enqueuedAt", "outboxId"),
        ("companyId", "htmlRef"),
        ("toHash",),
        ("recipientId",),
    ),
    instants=("enqueuedAt", "sentAt", "scheduledFor", "deadline", "expiresAt", "erasedAt"),
    expires="expiresAt",
)
"""One email and its status, for its tenant.

companyId, requestId, status, step (grows with each transition, so that a late write undoes nothing), to (masked),
toHash, ccCount, bccCount, subject (scrubbed), htmlRef, recipientId, externalId, cpfCnpjHash, tags, priority,
scheduledFor, attempt, lastErrorCode, lastErrorMessage, sesMessageId, sentAt, enqueuedAt, deadline, expiresAt; erasedAt
when the person was erased.
"""

LOG_COLLECTION: Final = Collection(
    LOG,
    key="outboxId",
    indexes=(("companyId",), ("recipientId",), ("sesMessageId",)),
    instants=("sentAt", "expiresAt"),
    expires="expiresAt",
    columns=("id",),
)
"""One email that was sent: id (the outbox id again), companyId, recipientId, sesMessageId, status, durationMs,
attempt, transport, refused (how many recipients the server refused), sentAt, expiresAt."""

RECIPIENTS_COLLECTION: Final = Collection(
    RECIPIENTS,
    key="recipientId",
    indexes=(("companyId", "externalId"), ("cpfCnpjHash",), ("emailHash",)),
    instants=("erasedAt",),
)
"""One person or company that a tenant writes to: companyId, externalId, cpfCnpjHash, cpfCnpjSealed, emailHash,
emailSealed, nomeSealed, razaoSocialSealed, erasedAt."""

CONTENT_COLLECTION: Final = Collection(
    CONTENT,
    key="contentKey",
    indexes=(("companyId",),),
    instants=("expiresAt",),
    expires="expiresAt",
)
"""HTML by reference, if the database stores it: companyId, sealed, bytes, sha256, expiresAt. A record of an external
producer has ``html``, in clear, instead of ``sealed``."""

SUPPRESSIONS_COLLECTION: Final = Collection(
    SUPPRESSIONS,
    key="addressHash",
    indexes=(("reason",), ("hash",)),
    instants=("since",),
)
"""One address that gets no more emails: addressHash (of the address; for one tenant followed by ``/`` and its id), hash
and companyId (only for one tenant), address (masked), reason (BOUNCE, COMPLAINT or MANUAL), detail, source,
since."""

EMAIL_COLLECTIONS: Final = (
    OUTBOX_COLLECTION,
    LOG_COLLECTION,
    RECIPIENTS_COLLECTION,
    CONTENT_COLLECTION,
    SUPPRESSIONS_COLLECTION,
)


class KnownRecords:
    """Records that were read before, by collection and key. Reads like the store."""

    def __init__(self, found: Iterable[tuple[tuple[str, str], Mapping[str, Any] | None]]) -> None:
        self._found = dict(found)

    def __getitem__(self, name: tuple[str, str]) -> Mapping[str, Any] | None:
        """The record; None if there was none."""
        return self._found[name]

    def has_any(self, collection: str) -> bool:
        """Whether a record of this collection was found."""
        return any(name == collection and record is not None for (name, _), record in self._found.items())

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """The record; None if there was none."""
        return self._found[collection, key]


def shown_hash(digest: str) -> str:
    """The beginning of a hash. People can compare it, and nobody can search with it."""
    return f"{digest[:_HASH_SHOWN]}..."


def content_key(company_id: str, ref: str) -> str:
    """The key of HTML in ``email_content``. It contains the company, so two tenants never share a key."""
    return f"{company_id}/{ref}"
