"""The answers of the email routes. Data that identifies a person is masked (I14)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from holdfast.views import BatchView, Instant, View

from .records import EmailStatus, shown_hash

_OUTBOX_ID: Final = "5d3f7a52-9c1e-5b77-8f0a-3b1f6f0c2e11"


class EmailReceipt(View):
    """The email is recorded. It will be sent, or end with a reason. A duplicate gets the first receipt again."""

    acknowledged: Literal[True] = True
    outbox_id: str = Field(examples=[_OUTBOX_ID])
    job_id: str = Field(description="The same as `outboxId`.", examples=[_OUTBOX_ID])
    request_id: str = Field(examples=["req_a1b2c3"])
    status: EmailStatus = Field(description="The status now.", examples=["ENQUEUED"])
    duplicate: bool = Field(description="Whether the same email had been accepted before.")
    queued: bool = Field(
        description="False: the email is in the ledger, but not yet in the queue. It will be queued later.",
        examples=[True],
    )
    received_at: Instant
    scheduled_for: Instant | None = Field(
        default=None, description="Sent no earlier; null: as soon as possible.", examples=[None]
    )


class EmailBatchAnswers(BatchView[EmailReceipt]):
    """One answer for each email, in the order of the request."""


class EmailView(View):
    """One email and its status."""

    outbox_id: str = Field(examples=[_OUTBOX_ID])
    request_id: str | None = Field(examples=["req_a1b2c3"])
    status: EmailStatus = Field(examples=["SENT"])
    to: str | None = Field(description="Masked; null after the person was erased.", examples=["c***@e***.com"])
    cc_count: int = Field(examples=[0])
    bcc_count: int = Field(examples=[0])
    subject: str | None = Field(examples=["Seu boleto está disponível"])
    html_ref: str | None = Field(examples=["0f8c1d4e-2a63-5c19-9b7e-6d5a4c3b2a10"])
    recipient_id: str | None = Field(examples=["7b9e2c44-0d3a-5f61-a2c8-91e4d7f3b605"])
    external_id: str | None = Field(examples=["CUST-12345"])
    cpf_cnpj_hash: str | None = Field(description="The first characters of the hash.", examples=["a3c7b8d9..."])
    tags: list[str] = Field(examples=[["boleto"]])
    priority: int | None = Field(examples=[5])
    attempt: int
    last_error_code: str | None
    last_error_message: str | None
    ses_message_id: str | None = Field(examples=["0100018f-example"])
    enqueued_at: Instant | None = Field(examples=["2026-11-16T12:00:01.000Z"])
    scheduled_for: Instant | None
    sent_at: Instant | None = Field(examples=["2026-11-16T12:00:01.480Z"])
    deadline: Instant | None = Field(examples=["2026-11-17T12:00:01.000Z"])

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> EmailView:
        """The view of an outbox record."""
        digest = record.get("cpfCnpjHash")
        return cls.picked(
            record,
            status=status_of(record),
            cc_count=record.get("ccCount") or 0,
            bcc_count=record.get("bccCount") or 0,
            cpf_cnpj_hash=None if digest is None else shown_hash(digest),
            tags=record.get("tags") or [],
            attempt=record.get("attempt") or 0,
        )


class EmailList(View):
    """Emails of one tenant, newest first."""

    items: list[EmailView]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class CancelView(View):
    """The email will not be sent."""

    outbox_id: str = Field(examples=[_OUTBOX_ID])
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
