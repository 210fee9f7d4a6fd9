"""The email workload: one job, one message, sent at most once (E7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Final

from holdfast import (
    Accept,
    Adopted,
    AskToStop,
    Collection,
    Complete,
    Context,
    DeadLetter,
    Delivery,
    Done,
    Effect,
    Expire,
    Expired,
    Halt,
    Job,
    JobState,
    ListedDelays,
    MoveToDeadLetters,
    Outcome,
    Publish,
    RateLimit,
    Reason,
    Reject,
    Release,
    Retry,
    RetryLater,
    Snooze,
    Transition,
    Workload,
    crash_point,
)
from holdfast.feature import TENANTS

from .content import Content, ContentError, ContentMissing, content_in_database
from .contract import (
    BACKOFF_DELAYS,
    DEAD_LETTER_QUEUE_NAME,
    DEFAULT_TTL,
    DLQ_TTL,
    JOB_NAME,
    MAX_ATTEMPTS,
    QUEUE_NAME,
    EmailSendJob,
    EmailSendResult,
    dead_letter_queue_of,
)
from .masking import log_facts, masked_job, without_names
from .mime import BuiltMessage, Sender, build_message
from .outbox import Outbox
from .queues import adopted, dead_letter_payload
from .records import EMAIL_COLLECTIONS, LOG, SUPPRESSIONS, EmailStatus, KnownRecords
from .suppression import suppression_keys
from .transports.port import (
    ANSWER_TIMEOUT,
    AccountBlocked,
    OutcomeUnknown,
    OutgoingMessage,
    Refused,
    Transport,
    TransportError,
    TryLater,
)
from .vault import Vault

OUTCOME_UNKNOWN: Final = "SEND_OUTCOME_UNKNOWN"
SUPPRESSED: Final = "RECIPIENT_SUPPRESSED"
INACTIVE: Final = "TENANT_INACTIVE"
UNSENDABLE: Final = "MESSAGE_UNSENDABLE"

_PROCESSING: Final = "Processing email job"
_THROTTLED_SUFFIX: Final = "THROTTLED"
_THROTTLE_WAIT: Final = timedelta(seconds=1)
_OTHER_STEPS_TIME: Final = timedelta(seconds=30)
"""The time for steps other than sending: waiting for a permit, and reading."""

_LONG_HTML: Final = 50_000
_STEPS: Final = 6
"""A mail server may need ``send_timeout`` at each of several steps. Only the transport knows which can be repeated."""

_LIMIT_NAME: Final = "email:send"
"""The name of the rate limit. It does not depend on the queue: emails may be moved from one queue to another."""
_RATE: Final = RateLimit(100, timedelta(seconds=1))
_BACKOFF: Final = tuple(timedelta(seconds=seconds) for seconds in BACKOFF_DELAYS)


@dataclass(frozen=True, slots=True)
class EmailOptions:
    """The settings of an operator. The defaults are those of the specification (E30, E51, E52).

    ``rate`` None: no limit. With ``resend``, an email whose outcome is unknown is sent again, so a person may get it
    twice. Otherwise the email becomes a dead letter (I11).
    """

    sender: Sender
    domain: str
    rate: RateLimit | None = _RATE
    concurrency: int = 10
    backoff: tuple[timedelta, ...] = _BACKOFF
    max_attempts: int = MAX_ATTEMPTS
    ttl: timedelta = timedelta(milliseconds=DEFAULT_TTL)
    retention: timedelta = timedelta(days=30)
    letter_retention: timedelta = timedelta(milliseconds=DLQ_TTL)
    send_timeout: timedelta = ANSWER_TIMEOUT
    resend: bool = False
    queue: str = QUEUE_NAME


class Email(Workload[EmailSendJob]):
    """Emails. The outbox id is the id of the job and the key in the ledger: one outbox id, one email (E6)."""

    name = "email"
    contract = EmailSendJob
    queue = QUEUE_NAME
    dead_letter_queue = DEAD_LETTER_QUEUE_NAME
    job_name = JOB_NAME
    collections: Sequence[Collection] = EMAIL_COLLECTIONS
    indexed_labels: Sequence[str] = ("companyId",)
    label_columns: Sequence[str] = ("companyId", "traceId")
    ttl_includes_replays = True
    keep_completed = 0

    def __init__(
        self,
        options: EmailOptions,
        vault: Vault,
        transport: Transport,
        content: Content | None = None,
    ) -> None:
        """Without ``content``, the database stores the HTML."""
        self.queue = options.queue
        self.dead_letter_queue = dead_letter_queue_of(options.queue)
        self.retry = ListedDelays(options.backoff, options.max_attempts)
        self.timeout = options.send_timeout * _STEPS + _OTHER_STEPS_TIME
        self.ttl: timedelta = options.ttl
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        self.concurrency = options.concurrency
        self._options = options
        self._vault = vault
        self._transport = transport
        self._content = content or content_in_database(vault)
        self._outbox = Outbox(vault, options.ttl, options.retention)

    # --- the job's identity -----------------------------------------------------------------------------------

    def key(self, data: EmailSendJob) -> str:
        """The outbox id."""
        return data.outboxId

    def job_id(self, key: str, data: EmailSendJob) -> str:
        """The outbox id."""
        del data
        return key

    def fingerprint(self, data: EmailSendJob) -> str:
        """A hash of the email and its recipients, without the fields that differ between two requests for it."""
        content = data.model_dump_json(exclude={"requestId", "enqueuedAt", "attempt"})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: EmailSendJob) -> dict[str, str]:
        """The tenant and the request. No personal data."""
        return {"companyId": data.companyId, "traceId": data.requestId}

    def fairness_key(self, data: EmailSendJob) -> str:
        """The tenant: tenants take turns."""
        return data.companyId

    def adopt(self, delivery: Delivery) -> Adopted[EmailSendJob]:
        """See :func:`holdfast.features.email.queues.adopted`."""
        return adopted(delivery)

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the transport. The store of the HTML is open already, because the intake uses it too."""
        await self._transport.open()

    async def stop(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def handle(self, job: Job[EmailSendJob], context: Context) -> Outcome:
        """Send the email, unless it was sent before or must not be sent."""
        data, began = job.data, time.monotonic()
        if job.received_at >= data.enqueuedAt + self.ttl:
            return Expired()  # its ttl ended in the queue, before we recorded it (I10)
        read = await self._read(data, context)
        log, tenant = read[LOG, data.outboxId], read[TENANTS, data.companyId] or {}
        if log is not None and log.get("status") == EmailStatus.SENT:
            context.log(_PROCESSING, **log_facts(job))
            answer = _already_sent(log)
            return Done([Outbox.was_sent(data, answer["sesMessageId"])], answer)
        obstacle = await self._obstacle(job, context, tenant, suppressed=read.has_any(SUPPRESSIONS))
        if isinstance(obstacle, Snooze):  # the tenant's own rate limit: this is not an attempt
            return obstacle
        context.log(_PROCESSING, **log_facts(job))
        if obstacle is not None:
            return obstacle
        message = await self._message(data, read, tenant)
        return await self._send(job, context, message, began) if isinstance(message, BuiltMessage) else message

    async def _read(self, data: EmailSendJob, context: Context) -> KnownRecords:
        """Everything that the store has about this email now, in one read."""
        names = [(LOG, data.outboxId), (TENANTS, data.companyId)]
        names += [(SUPPRESSIONS, key) for key in self._suppression_keys(data)]
        names += self._content.records_of(data.companyId, data.htmlRef)
        return KnownRecords(zip(names, await context.get_many(names), strict=True))

    async def _obstacle(
        self, job: Job[EmailSendJob], context: Context, tenant: Mapping[str, Any], *, suppressed: bool
    ) -> Outcome | None:
        """The reason why the email must not be sent, or not yet; None if there is none."""
        if not tenant.get("active", True):
            return Reject(INACTIVE, "The tenant is not active.")
        if suppressed:
            return Reject(SUPPRESSED, "An address of this email is on the suppression list.")
        if tenant.get("ratePerSecond"):
            limit = f"{_LIMIT_NAME}:{job.data.companyId}"
            wait = await context.reserve(limit, _per_second(tenant["ratePerSecond"]))
            if wait > timedelta(0):
                return Snooze(wait)
        return None

    async def _message(
        self, data: EmailSendJob, read: KnownRecords, tenant: Mapping[str, Any]
    ) -> BuiltMessage | Outcome:
        """The message, ready to be sent; or the outcome if there can be no message."""
        tenant_sender = tenant.get("sender")
        try:
            html = await self._content.get(data.companyId, data.htmlRef, read)
            sender = Sender.parse(tenant_sender) if tenant_sender else self._options.sender
            build = partial(build_message, data, html, sender=sender, domain=self._options.domain, date=data.enqueuedAt)
            # Long HTML takes time. In a thread, other emails do not have to wait.
            return await asyncio.to_thread(build) if len(html) > _LONG_HTML else build()
        except ContentMissing as error:
            return Reject(error.code, error.message)
        except ContentError as error:
            return Retry(error.code, error.message)
        except ValueError as error:
            return Reject(UNSENDABLE, str(error))

    async def _send(self, job: Job[EmailSendJob], context: Context, message: BuiltMessage, began: float) -> Outcome:
        """Wait for a permit, commit the point of no return, and send. Every other step is done before."""
        data = job.data
        outgoing = OutgoingMessage(
            outbox_id=data.outboxId,
            raw=message.raw,
            message_id=message.message_id,
            sender=message.envelope_from,
            recipients=message.recipients,
            tags=data.tags or (),
        )
        async with self._permit(context):
            sending = self._outbox.sending(data, job.generation, job.attempt)
            await context.proceed([sending], repeatable=self._options.resend)
            crash_point("email.before_send")
            try:
                accepted = await self._transport.send(outgoing)
            except TransportError as error:
                # The error may repeat parts of the message.
                names = (data.recipient.nome, data.recipient.razaoSocial)
                return self._not_sent(error, without_names(error.message, *names))
            crash_point("email.sent")
        now = datetime.now(UTC)
        duration = round((time.monotonic() - began) * 1000)
        effects = self._outbox.sent(
            data, accepted, attempt=job.attempt, transport=self._transport.name, at=now, duration_ms=duration
        )
        result = EmailSendResult(
            sesMessageId=accepted.message_id, status="SENT", processedAt=now, durationMs=duration, attempt=job.attempt
        )
        return Done(effects, result.model_dump(mode="json"))

    def _permit(self, context: Context) -> contextlib.AbstractAsyncContextManager[None]:
        rate = self._options.rate
        return contextlib.nullcontext() if rate is None else context.limit(_LIMIT_NAME, rate)

    def _not_sent(self, error: TransportError, message: str) -> Outcome:
        """The outcome for a transport error. The error shows whether the message may have been sent."""
        match error:
            case Refused():
                return Reject(error.code, message)
            case AccountBlocked():
                return Halt(error.code, message)
            case OutcomeUnknown() if self._options.resend:
                return Retry(OUTCOME_UNKNOWN, f"{error.code}: {message}")
            case TryLater() if error.code.endswith(_THROTTLED_SUFFIX):  # a throttled job costs no attempt
                return Snooze(error.after or _THROTTLE_WAIT)
            case TryLater():
                return Retry(error.code, message, error.after)
            case _:
                return Reject(OUTCOME_UNKNOWN, f"{error.code}: {message}")

    def _suppression_keys(self, data: EmailSendJob) -> list[str]:
        """The keys under which the addresses of the email may be on the suppression list."""
        addresses = (data.to, *(data.cc or ()), *(data.bcc or ()))
        return [key for each in addresses for key in suppression_keys(self._vault, each, data.companyId)]

    def repeated(self, result: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """``ALREADY_SENT``, with the message id of the provider (E34)."""
        return _already_sent(result or {})

    def interrupted(self, attempts: int) -> Reason:
        """``SEND_OUTCOME_UNKNOWN``: the worker was lost while it was sending."""
        return Reason(
            OUTCOME_UNKNOWN, f"Attempt {attempts} ended while it was sending: the email may have been sent, or not."
        )

    # --- effects on the outbox --------------------------------------------------------------------------------

    def on_transition(self, transition: Transition, job: JobState[EmailSendJob]) -> Sequence[Effect]:  # noqa: PLR0911
        """The email's record in the outbox, after each transition."""
        outbox, data = self._outbox, job.data
        match transition:
            case Accept(queued=queued):
                return [outbox.arrived(data, queued=queued)]
            case Publish():
                return [outbox.enqueued(data, job.generation)]
            case RetryLater():
                return [outbox.retrying(job, transition)]
            case Release():
                return [outbox.released(job)]
            case MoveToDeadLetters():
                return [outbox.failed(job, transition)]
            case Expire(cancelled=cancelled):
                return [outbox.ended(data, EmailStatus.CANCELLED if cancelled else EmailStatus.EXPIRED)]
            case Complete(elsewhere=True, result=result):
                return outbox.sent_elsewhere(job, result or {})
            case AskToStop() | Complete():  # an email in work is not stopped; the handler returned its effects
                return ()

    # --- the wire ---------------------------------------------------------------------------------------------

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """The masked job: people who look at jobs do not need to see the recipients."""
        try:
            return masked_job(json.loads(body))
        except (ValueError, RecursionError):
            return masked_job(body)

    def letter_body(self, body: str) -> str:
        """The masked job: a dead letter is for people. A replay uses the job in the ledger."""
        return json.dumps(self.readable(body), ensure_ascii=False, separators=(",", ":"))

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """The dead-letter contract of ``email:send:dlq``."""
        return dead_letter_payload(letter, self.readable(letter.body))


def _already_sent(known: Mapping[str, Any]) -> dict[str, str]:
    """The result of a job whose email was sent before. ``known`` is the log record or an earlier result."""
    return {"status": "ALREADY_SENT", "sesMessageId": str(known.get("sesMessageId") or "")}


def _per_second(rate: float) -> RateLimit:
    """One email per interval. A rate below 1 gives an interval longer than a second."""
    return RateLimit(1, timedelta(seconds=1 / rate))
