"""The answers of the email routes. Data that identifies a person is masked (I14)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field

from holdfast.api.views import ErrorView, Instant, View

_HASH_SHOWN: Final = 8


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


class EmailReceipt(View):
    """The email is recorded. It will be sent, or end with a reason. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    outbox_id: str
    job_id: str = Field(description="The same as `outboxId`.")
    request_id: str
    status: EmailStatus = Field(description="The status now.")
    duplicate: bool = Field(description="Whether the same email had been accepted before.")
    queued: bool = Field(
        description="False: the email is in the ledger, but not yet in the queue. It will be queued later."
    )
    received_at: Instant
    scheduled_for: Instant | None = Field(default=None, description="Sent no earlier; null: as soon as possible.")


class BatchAnswer(View):
    """The answer for one email of a batch."""

    index: int = Field(description="The position in the request, from 0.")
    status_code: int = Field(description="The HTTP status that the email would get alone.", examples=[202])
    answer: EmailReceipt | ErrorView = Field(description="The body that the email would get alone.")


class BatchView(View):
    """One answer for each email, in the order of the request."""

    accepted: int
    refused: int
    answers: list[BatchAnswer]


class EmailView(View):
    """One email and its status."""

    outbox_id: str
    request_id: str | None
    status: EmailStatus
    to: str | None = Field(description="Masked; null after the person was erased.", examples=["c***@e***.com"])
    cc_count: int
    bcc_count: int
    subject: str | None
    html_ref: str | None
    recipient_id: str | None
    external_id: str | None
    cpf_cnpj_hash: str | None = Field(description="The first characters of the hash.", examples=["a3c7b8d9..."])
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
    def of(cls, record: Mapping[str, Any]) -> EmailView:
        """The view of an outbox record."""
        return cls(
            outbox_id=record["outboxId"],
            request_id=record.get("requestId"),
            status=status_of(record),
            to=record.get("to"),
            cc_count=record.get("ccCount") or 0,
            bcc_count=record.get("bccCount") or 0,
            subject=record.get("subject"),
            html_ref=record.get("htmlRef"),
            recipient_id=record.get("recipientId"),
            external_id=record.get("externalId"),
            cpf_cnpj_hash=_cut(record.get("cpfCnpjHash")),
            tags=record.get("tags") or [],
            priority=record.get("priority"),
            attempt=record.get("attempt") or 0,
            last_error_code=record.get("lastErrorCode"),
            last_error_message=record.get("lastErrorMessage"),
            ses_message_id=record.get("sesMessageId"),
            enqueued_at=instant_of(record, "enqueuedAt"),
            scheduled_for=instant_of(record, "scheduledFor"),
            sent_at=instant_of(record, "sentAt"),
            deadline=instant_of(record, "deadline"),
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
    """The notification was accepted."""

    suppressed: int = Field(description="How many addresses of the notification are on the suppression list now.")


def status_of(record: Mapping[str, Any]) -> EmailStatus:
    """The status in an outbox record."""
    return EmailStatus(record.get("status", EmailStatus.PENDING))


def instant_of(record: Mapping[str, Any], name: str) -> datetime | None:
    """An instant of a record; None if the record has none."""
    text = record.get(name)
    return None if text is None else datetime.fromisoformat(text)


def _cut(digest: str | None) -> str | None:
    return None if digest is None else f"{digest[:_HASH_SHOWN]}..."
