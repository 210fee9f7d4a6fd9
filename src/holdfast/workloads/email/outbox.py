"""What the outbox says about an email, step by step: effects that go with the ledger's own moves.

``step`` grows along an email's life, so that the word "enqueued", which may come late, undoes nothing that a worker has
said since.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.contracts.effects import Upsert
from holdfast.contracts.redaction import scrub
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Failure, Reason, Standing

from .addresses import mask_address
from .contract import MAX_ERROR_CODE, MAX_ERROR_REASON, EmailSendJob, OutboxStatus
from .records import LOG, OUTBOX
from .suppression import address_hash
from .texts import cut
from .transports.port import Accepted
from .vault import Vault

_OF_A_GENERATION: Final = 1000
_OF_AN_ATTEMPT: Final = 10
_LAST: Final = 10**9


class Outbox:
    """Writes ``email_outbox`` and ``email_log``."""

    def __init__(self, vault: Vault, ttl: timedelta, retention: timedelta) -> None:
        self._vault = vault
        self._ttl = ttl
        self._retention = retention

    def arrived(self, job: EmailSendJob, *, queued: bool) -> Upsert:
        """The email is accepted. What identifies its recipient is masked or keyed."""
        recipient = job.recipient
        status = OutboxStatus.ENQUEUED if queued else OutboxStatus.PENDING
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
        return _says(job, status, _step(1, 0, int(queued)), fields)

    @staticmethod
    def enqueued(job: EmailSendJob, generation: int) -> Upsert:
        """The queue has it; a worker that has begun already has the last word."""
        return _says(job, OutboxStatus.ENQUEUED, _step(generation, 0, 1), only_if_newer="step")

    @staticmethod
    def sending(job: EmailSendJob, generation: int, attempt: int) -> Upsert:
        """The provider is about to be called."""
        return _says(job, OutboxStatus.SENDING, _step(generation, attempt, 2), {"attempt": attempt})

    @staticmethod
    def retrying(job: Standing[EmailSendJob], failure: Failure, after: timedelta) -> Upsert:
        """The attempt failed, and another follows."""
        fields = {
            "attempt": job.attempt,
            "retryAfterMs": round(after.total_seconds() * 1000),
            **_error(failure.code, failure.message),
        }
        return _says(job.data, OutboxStatus.RETRYING, _step(job.generation, job.attempt, 3), fields)

    @staticmethod
    def released(job: Standing[EmailSendJob]) -> Upsert:
        """The attempt did not count: the email waits as it did before."""
        before = max(0, job.attempt - 1)
        status = OutboxStatus.RETRYING if before else OutboxStatus.ENQUEUED
        return _says(job.data, status, _step(job.generation, before, 4), {"attempt": before})

    @staticmethod
    def failed(job: Standing[EmailSendJob], reason: Reason) -> Upsert:
        """It became a dead letter."""
        fields = {"attempt": job.attempt, **_error(reason.code, reason.message)}
        return _says(job.data, OutboxStatus.FAILED, _step(job.generation, job.attempt, 9), fields)

    @staticmethod
    def ended(job: EmailSendJob, status: OutboxStatus) -> Upsert:
        """It expired, or its tenant cancelled it."""
        return _says(job, status, _LAST)

    def sent(  # noqa: PLR0913 - what there is to say about a sending
        self,
        job: EmailSendJob,
        accepted: Accepted,
        *,
        attempt: int,
        transport: str,
        at: datetime,
        duration_ms: int,
    ) -> tuple[Upsert, Upsert]:
        """The provider took it: the outbox says so, and the log keeps what the provider called it."""
        message_id = accepted.message_id
        log = Upsert(
            LOG,
            job.outboxId,
            set={
                "id": job.outboxId,
                "companyId": job.companyId,
                "recipientId": job.recipient.recipientId,
                "sesMessageId": message_id,
                "status": OutboxStatus.SENT.value,
                "durationMs": duration_ms,
                "attempt": attempt,
                "transport": transport,
                "refused": len(accepted.refused),
                "sentAt": isoformat(at),
                "expiresAt": isoformat(at + self._retention),
            },
        )
        fields = {"attempt": attempt, "sesMessageId": message_id, "sentAt": isoformat(at), **_error(None, None)}
        return _says(job, OutboxStatus.SENT, _LAST, fields), log

    def sent_elsewhere(self, job: Standing[EmailSendJob], result: Mapping[str, Any]) -> tuple[Upsert, Upsert]:
        """Somebody else's worker sent it, and returned this, as the specification has it."""
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
        """An earlier attempt sent it, and the log knows."""
        return _says(job, OutboxStatus.SENT, _LAST, {"sesMessageId": message_id})


def _step(generation: int, attempt: int, place: int) -> int:
    return generation * _OF_A_GENERATION + attempt * _OF_AN_ATTEMPT + place


def _error(code: str | None, message: str | None) -> dict[str, str | None]:
    return {
        "lastErrorCode": None if code is None else cut(code, MAX_ERROR_CODE),
        "lastErrorMessage": None if message is None else cut(message, MAX_ERROR_REASON),
    }


def _says(
    job: EmailSendJob,
    status: OutboxStatus,
    step: int,
    fields: Mapping[str, Any] | None = None,
    *,
    only_if_newer: str | None = None,
) -> Upsert:
    written = {**(fields or {}), "status": status.value, "step": step}
    return Upsert(OUTBOX, job.outboxId, set=written, only_if_newer=only_if_newer)
