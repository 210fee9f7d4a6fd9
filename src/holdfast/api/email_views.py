"""The shapes of the email routes' answers. What identifies a person is masked (I14)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field

from .views import ErrorView, Instant, View

_HASH_SHOWN: Final = 8


class EmailStatus(StrEnum):
    """Where an email stands."""

    PENDING = "PENDING"
    ENQUEUED = "ENQUEUED"
    SENDING = "SENDING"
    SENT = "SENT"
    RETRYING = "RETRYING"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class EmailReceipt(View):
    """The email is recorded and will be sent, or end with a reason. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    outbox_id: str
    job_id: str = Field(description="The same as `outboxId`.")
    request_id: str
    status: EmailStatus = Field(description="Where it stands now.")
    duplicate: bool = Field(description="Whether the same email had been accepted before.")
    queued: bool = Field(description="False: the ledger has it and the queue not yet; it will be queued later.")
    received_at: Instant
    scheduled_for: Instant | None = Field(default=None, description="Not sent before; null: as soon as possible.")


class BatchAnswer(View):
    """What became of one email of a batch."""

    index: int = Field(description="Its place in the request, from 0.")
    status_code: int = Field(description="The status that it would have got alone.", examples=[202])
    answer: EmailReceipt | ErrorView = Field(description="The body that it would have got alone.")


class BatchView(View):
    """One answer for each email, in the order of the request."""

    accepted: int
    refused: int
    answers: list[BatchAnswer]


class EmailView(View):
    """One email and where it stands."""

    outbox_id: str
    request_id: str | None
    status: EmailStatus
    to: str | None = Field(description="Masked; null once the person was forgotten.", examples=["c***@e***.com"])
    cc_count: int
    bcc_count: int
    subject: str | None
    html_ref: str | None
    recipient_id: str | None
    external_id: str | None
    cpf_cnpj_hash: str | None = Field(description="Its first characters.", examples=["a3c7b8d9..."])
    tags: list[str]
    priority: int | None
    attempt: int
    last_error_code: str | None
    last_error_message: str | None
    ses_message_id: str | None
    enqueued_at: Instant | None
    scheduled_for: Instant | None
    sent_at: Instant | None
    deadline: Instant | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EmailView:
        """As the outbox has it."""
        return cls(
            outbox_id=document["outboxId"],
            request_id=document.get("requestId"),
            status=status_of(document),
            to=document.get("to"),
            cc_count=document.get("ccCount") or 0,
            bcc_count=document.get("bccCount") or 0,
            subject=document.get("subject"),
            html_ref=document.get("htmlRef"),
            recipient_id=document.get("recipientId"),
            external_id=document.get("externalId"),
            cpf_cnpj_hash=_cut(document.get("cpfCnpjHash")),
            tags=document.get("tags") or [],
            priority=document.get("priority"),
            attempt=document.get("attempt") or 0,
            last_error_code=document.get("lastErrorCode"),
            last_error_message=document.get("lastErrorMessage"),
            ses_message_id=document.get("sesMessageId"),
            enqueued_at=instant_of(document, "enqueuedAt"),
            scheduled_for=instant_of(document, "scheduledFor"),
            sent_at=instant_of(document, "sentAt"),
            deadline=instant_of(document, "deadline"),
        )


class EmailList(View):
    """Emails of one tenant, newest first."""

    items: list[EmailView]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class CancelView(View):
    """The email will not be sent."""

    outbox_id: str
    status: Literal[EmailStatus.CANCELLED] = EmailStatus.CANCELLED


class NotificationView(View):
    """The notification was understood."""

    suppressed: int = Field(description="How many addresses get no more emails because of it.")


def status_of(document: Mapping[str, Any]) -> EmailStatus:
    """Where the email stands."""
    return EmailStatus(document.get("status", EmailStatus.PENDING))


def instant_of(document: Mapping[str, Any], name: str) -> datetime | None:
    """An instant of a document, where it has one."""
    text = document.get(name)
    return None if text is None else datetime.fromisoformat(text)


def _cut(digest: str | None) -> str | None:
    return None if digest is None else f"{digest[:_HASH_SHOWN]}..."
