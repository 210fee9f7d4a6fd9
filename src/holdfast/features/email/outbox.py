"""Effects that keep the outbox record of an email up to date. They are committed with each transition of the ledger.

``step`` grows with each transition. The effect "enqueued" may come late. With ``step``, it cannot undo what a worker
has written in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast import JobState, MoveToDeadLetters, RetryLater, Upsert, isoformat, scrub

from .contract import MAX_ERROR_CODE, MAX_ERROR_REASON, EmailSendJob
from .records import LOG, OUTBOX, EmailStatus
from .suppression import address_hash
from .texts import cut, mask_address
from .transports.port import Accepted
from .vault import Vault

_STEPS_PER_GENERATION: Final = 1000
_STEPS_PER_ATTEMPT: Final = 10
_LAST_STEP: Final = 10**9


class Outbox:
    """Writes ``email_outbox`` and ``email_log``."""

    def __init__(self, vault: Vault, ttl: timedelta, retention: timedelta) -> None:
        self._vault = vault
        self._ttl = ttl
        self._retention = retention

    def arrived(self, job: EmailSendJob, *, queued: bool) -> Upsert:
        """The email is accepted. Data that identifies its recipient is masked, or hashed with a key."""
        recipient = job.recipient
        status = EmailStatus.ENQUEUED if queued else EmailStatus.PENDING
        fields: dict[str, Any] = {
            "companyId": job.companyId,
            "requestId": job.requestId,
            "to": mask_address(job.to),
            "toHash": address_hash(self._vault, job.to),
            "ccCount": len(job.cc or ()),
            "bccCount": len(job.bcc or ()),
            "subject": scrub(job.subject),
            "htmlRef": job.htmlRef,
            "recipientId": recipient.recipientId,
            "externalId": recipient.externalId,
            "cpfCnpjHash": recipient.cpfCnpjHash,
            "tags": list(job.tags or ()),
            "attempt": 0,
            "enqueuedAt": isoformat(job.enqueuedAt),
            "deadline": isoformat(job.enqueuedAt + self._ttl),
            "expiresAt": isoformat(job.enqueuedAt + self._ttl + self._retention),
        }
        return _status_update(job, status, _step(1, 0, int(queued)), fields)

    @staticmethod
    def enqueued(job: EmailSendJob, generation: int) -> Upsert:
        """The email is in the queue. If a worker has started it already, the status of the worker stays."""
        return _status_update(job, EmailStatus.ENQUEUED, _step(generation, 0, 1), only_if_newer="step")

    @staticmethod
    def sending(job: EmailSendJob, generation: int, attempt: int) -> Upsert:
        """The provider is about to be called."""
        return _status_update(job, EmailStatus.SENDING, _step(generation, attempt, 2), {"attempt": attempt})

    @staticmethod
    def retrying(job: JobState[EmailSendJob], retry: RetryLater) -> Upsert:
        """The attempt failed, and another follows."""
        fields = {
            "attempt": job.attempt,
            "retryAfterMs": round(retry.after.total_seconds() * 1000),
            **_error(retry.code, retry.message),
        }
        return _status_update(job.data, EmailStatus.RETRYING, _step(job.generation, job.attempt, 3), fields)

    @staticmethod
    def released(job: JobState[EmailSendJob]) -> Upsert:
        """The attempt was released and does not count: the email waits as before."""
        before = max(0, job.attempt - 1)
        status = EmailStatus.RETRYING if before else EmailStatus.ENQUEUED
        return _status_update(job.data, status, _step(job.generation, before, 4), {"attempt": before})

    @staticmethod
    def failed(job: JobState[EmailSendJob], dead_letter: MoveToDeadLetters) -> Upsert:
        """The email became a dead letter."""
        fields = {"attempt": job.attempt, **_error(dead_letter.reason_code, dead_letter.reason_message)}
        return _status_update(job.data, EmailStatus.FAILED, _step(job.generation, job.attempt, 9), fields)

    @staticmethod
    def ended(job: EmailSendJob, status: EmailStatus) -> Upsert:
        """The email expired, or its tenant cancelled it."""
        return _status_update(job, status, _LAST_STEP)

    def sent(  # noqa: PLR0913 - the fields of email_log
        self,
        job: EmailSendJob,
        accepted: Accepted,
        *,
        attempt: int,
        transport: str,
        at: datetime,
        duration_ms: int,
    ) -> tuple[Upsert, Upsert]:
        """The provider accepted the email: update the outbox, and write the provider's message id to the log."""
        message_id = accepted.message_id
        log = Upsert(
            LOG,
            job.outboxId,
            set={
                "id": job.outboxId,
                "companyId": job.companyId,
                "recipientId": job.recipient.recipientId,
                "sesMessageId": message_id,
                "status": EmailStatus.SENT.value,
                "durationMs": duration_ms,
                "attempt": attempt,
                "transport": transport,
                "refused": len(accepted.refused),
                "sentAt": isoformat(at),
                "expiresAt": isoformat(at + self._retention),
            },
        )
        fields = {"attempt": attempt, "sesMessageId": message_id, "sentAt": isoformat(at), **_error(None, None)}
        return _status_update(job, EmailStatus.SENT, _LAST_STEP, fields), log

    def sent_elsewhere(self, job: JobState[EmailSendJob], result: Mapping[str, Any]) -> tuple[Upsert, Upsert]:
        """A worker of another system sent the email, with this result (E50)."""
        message_id, duration = result.get("sesMessageId"), result.get("durationMs")
        return self.sent(
            job.data,
            Accepted(message_id if isinstance(message_id, str) else ""),
            attempt=job.attempt,
            transport="elsewhere",
            at=datetime.now(UTC),
            duration_ms=duration if isinstance(duration, int) else 0,
        )

    @staticmethod
    def was_sent(job: EmailSendJob, message_id: str) -> Upsert:
        """The log shows that an earlier attempt sent the email."""
        return _status_update(job, EmailStatus.SENT, _LAST_STEP, {"sesMessageId": message_id})


def _step(generation: int, attempt: int, place: int) -> int:
    return generation * _STEPS_PER_GENERATION + attempt * _STEPS_PER_ATTEMPT + place


def _error(code: str | None, message: str | None) -> dict[str, str | None]:
    return {
        "lastErrorCode": None if code is None else cut(code, MAX_ERROR_CODE),
        "lastErrorMessage": None if message is None else cut(message, MAX_ERROR_REASON),
    }


def _status_update(
    job: EmailSendJob,
    status: EmailStatus,
    step: int,
    fields: Mapping[str, Any] | None = None,
    *,
    only_if_newer: str | None = None,
) -> Upsert:
    written = {**(fields or {}), "status": status.value, "step": step}
    return Upsert(OUTBOX, job.outboxId, set=written, only_if_newer=only_if_newer)
