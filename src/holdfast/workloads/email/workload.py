"""The email workload: one job, one message, sent once or not at all (seed 004)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Collection, Effect
from holdfast.contracts.outcomes import Done, Expired, Halt, Outcome, Reject, Retry, Snooze
from holdfast.contracts.queues import Delivery, RateLimit
from holdfast.contracts.retry import ListedDelays
from holdfast.contracts.tenants import TENANTS
from holdfast.contracts.workload import Adopted, Context, Failure, Job, Reason, Standing, Workload

from .adopting import adopted
from .content import Content, ContentError, ContentMissing
from .content_database import html_in
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
    OutboxStatus,
    dead_letter_queue_of,
)
from .dead_letter import dead_letter_payload
from .masking import log_facts, masked_job, without_names
from .mime import BuiltMessage, Sender, build_message
from .outbox import Outbox
from .records import CONTENT, EMAIL_COLLECTIONS, LOG, SUPPRESSIONS, content_key
from .suppression import address_hash
from .transports.port import (
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
_THROTTLE: Final = "THROTTLED"
_BREATHER: Final = timedelta(seconds=1)
_NOT_SENDING: Final = timedelta(seconds=30)
"""What waiting for a turn and reading may take besides the sending itself."""


_LONG: Final = 50_000
_STEPS: Final = 6
"""A mail server may take its time at each of several steps; only the transport knows which of them can be repeated."""

_FLOW: Final = "email:send"
"""What the limits go by: the same for workers on two queues, while emails move from the one to the other."""
_RATE: Final = RateLimit(100, timedelta(seconds=1))
_BACKOFF: Final = tuple(timedelta(seconds=seconds) for seconds in BACKOFF_DELAYS)


@dataclass(frozen=True, slots=True)
class EmailOptions:
    """What an operator can set. The defaults are those of seed 004.

    ``rate`` of None sends as fast as it goes. With ``resend``, an email whose sending ended in doubt is sent again, at
    worst twice; otherwise it becomes a dead letter (I11).
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
    send_timeout: timedelta = timedelta(seconds=15)
    resend: bool = False
    queue: str = QUEUE_NAME


class Email(Workload[EmailSendJob]):
    """Emails. The job's id is the outbox id, and so is the ledger's key: one outbox id, one email."""

    name: ClassVar[str] = "email"
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
        """Without ``content``, HTML is kept in the database."""
        self.queue = options.queue
        self.dead_letter_queue = dead_letter_queue_of(options.queue)
        self.retry = ListedDelays(options.backoff, options.max_attempts)
        self.timeout = options.send_timeout * _STEPS + _NOT_SENDING
        self.ttl: timedelta = options.ttl
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        self.concurrency = options.concurrency
        self._options = options
        self._vault = vault
        self._transport = transport
        self._content = content
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
        """Covers what the email says and to whom, and nothing that differs between two requests for it."""
        content = data.model_dump_json(exclude={"requestId", "enqueuedAt", "attempt"})
        return sha256(content.encode()).hexdigest()

    def labels(self, data: EmailSendJob) -> dict[str, str]:
        """Nothing personal: whose email it is, and the request that it came with."""
        return {"companyId": data.companyId, "traceId": data.requestId}

    def fairness_key(self, data: EmailSendJob) -> str:
        """Tenants take turns."""
        return data.companyId

    def adopt(self, delivery: Delivery) -> Adopted[EmailSendJob]:
        """See :func:`holdfast.workloads.email.adopting.adopted`."""
        return adopted(delivery)

    # --- the work ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the transport. The place of the HTML is open already: the door uses it too."""
        await self._transport.open()

    async def stop(self) -> None:
        """Close it."""
        await self._transport.close()

    async def handle(self, job: Job[EmailSendJob], context: Context) -> Outcome:
        """Send the email, unless it was sent before or must not be."""
        data, began = job.data, time.monotonic()
        if job.received_at >= data.enqueuedAt + self.ttl:
            return Expired(self.expired(data))  # it lay in the queue for its whole life before we saw it (I10)
        log, tenant = await asyncio.gather(context.get(LOG, data.outboxId), context.get(TENANTS, data.companyId))
        if log is not None and log.get("status") == OutboxStatus.SENT:
            context.log(_PROCESSING, **log_facts(job))
            answer = _already_sent(log)
            return Done([Outbox.was_sent(data, answer["sesMessageId"])], answer)
        obstacle = await self._reason_to_wait_or_stop(job, context, tenant or {})
        if isinstance(obstacle, Snooze):  # its place in its tenant's flow has not come: this is no attempt
            return obstacle
        context.log(_PROCESSING, **log_facts(job))
        if obstacle is not None:
            return obstacle
        message = await self._message(data, context, tenant or {})
        return await self._send(job, context, message, began) if isinstance(message, BuiltMessage) else message

    async def _reason_to_wait_or_stop(
        self, job: Job[EmailSendJob], context: Context, tenant: Mapping[str, Any]
    ) -> Outcome | None:
        """Why the email must not be sent, or not yet."""
        if not tenant.get("active", True):
            return Reject(INACTIVE, "The tenant does not send emails any more.")
        if await self._suppressed(job.data, context):
            return Reject(SUPPRESSED, "An address of this email is on the suppression list.")
        if tenant.get("ratePerSecond"):
            flow = f"{_FLOW}:{job.data.companyId}"
            wait = await context.reserve(job, flow, _per_second(tenant["ratePerSecond"]))
            if wait > timedelta(0):
                return Snooze(wait)
        return None

    async def _message(self, data: EmailSendJob, context: Context, tenant: Mapping[str, Any]) -> BuiltMessage | Outcome:
        """The message, ready to go; or why there can be none."""
        own = tenant.get("sender")
        try:
            html = await self._html(data, context)
            sender = Sender.parse(own) if own else self._options.sender
            build = partial(build_message, data, html, sender=sender, domain=self._options.domain, date=data.enqueuedAt)
            # A long text takes a while to read; the other emails need not wait for it.
            return await asyncio.to_thread(build) if len(html) > _LONG else build()
        except ContentMissing as error:
            return Reject(error.code, error.message)
        except ContentError as error:
            return Retry(error.code, error.message)
        except ValueError as error:
            return Reject(UNSENDABLE, str(error))

    async def _send(self, job: Job[EmailSendJob], context: Context, message: BuiltMessage, began: float) -> Outcome:
        """Everything that may be undone has been done: wait for a turn, say so, and send."""
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
            await context.proceed(job, [sending], repeatable=self._options.resend)
            crash_point("email.before_send")
            try:
                accepted = await self._transport.send(outgoing)
            except TransportError as error:
                # The server may repeat what it was sent.
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
        return _no_permit() if rate is None else context.limit(_FLOW, rate)

    def _not_sent(self, error: TransportError, message: str) -> Outcome:
        """What follows from the transport's word, which says whether the message may be out."""
        match error:
            case Refused():
                return Reject(error.code, message)
            case AccountBlocked():
                return Halt(error.code, message)
            case OutcomeUnknown() if self._options.resend:
                return Retry(OUTCOME_UNKNOWN, f"{error.code}: {message}")
            case TryLater() if error.code.endswith(_THROTTLE):  # nobody's failure: a throttled job costs no attempt
                return Snooze(error.after or _BREATHER)
            case TryLater():
                return Retry(error.code, message, error.after)
            case _:
                return Reject(OUTCOME_UNKNOWN, f"{error.code}: {message}")

    async def _suppressed(self, data: EmailSendJob, context: Context) -> bool:
        """Whether an address got onto the list since the email was accepted."""
        addresses = (data.to, *(data.cc or ()), *(data.bcc or ()))
        hashes = [address_hash(self._vault, address) for address in addresses]
        found = await asyncio.gather(*(context.get(SUPPRESSIONS, each) for each in hashes))
        return any(document is not None for document in found)

    async def _html(self, data: EmailSendJob, context: Context) -> str:
        if self._content is not None:
            return await self._content.get(data.companyId, data.htmlRef)
        kept = await context.get(CONTENT, content_key(data.companyId, data.htmlRef))
        return html_in(self._vault, data.companyId, data.htmlRef, kept)

    def repeated(self, result: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """``ALREADY_SENT``, with the id that the provider gave."""
        return _already_sent(result or {})

    def interrupted(self, attempts: int) -> Reason:
        """``SEND_OUTCOME_UNKNOWN``: the worker went away with the message."""
        return Reason(OUTCOME_UNKNOWN, f"Attempt {attempts} ended while it was sending: the email may be out, or not.")

    # --- what the outbox says ---------------------------------------------------------------------------------

    def accepted(self, data: EmailSendJob, *, queued: bool) -> Sequence[Effect]:
        """PENDING, or ENQUEUED at once."""
        return [self._outbox.arrived(data, queued=queued)]

    def enqueued(self, data: EmailSendJob, generation: int) -> Sequence[Effect]:
        """ENQUEUED."""
        return [self._outbox.enqueued(data, generation)]

    def retrying(self, job: Standing[EmailSendJob], failure: Failure, after: timedelta) -> Sequence[Effect]:
        """RETRYING."""
        return [self._outbox.retrying(job, failure, after)]

    def released(self, job: Standing[EmailSendJob]) -> Sequence[Effect]:
        """As before the attempt."""
        return [self._outbox.released(job)]

    def dead_lettered(self, job: Standing[EmailSendJob], reason: Reason) -> Sequence[Effect]:
        """FAILED."""
        return [self._outbox.failed(job, reason)]

    def worked_elsewhere(self, job: Standing[EmailSendJob], result: Mapping[str, Any] | None) -> Sequence[Effect]:
        """SENT, by somebody else's worker."""
        return self._outbox.sent_elsewhere(job, result or {})

    def expired(self, data: EmailSendJob) -> Sequence[Effect]:
        """EXPIRED."""
        return [self._outbox.ended(data, OutboxStatus.EXPIRED)]

    def cancelled(self, data: EmailSendJob) -> Sequence[Effect]:
        """CANCELLED."""
        return [self._outbox.ended(data, OutboxStatus.CANCELLED)]

    # --- the wire ---------------------------------------------------------------------------------------------

    def readable(self, body: str) -> Any:  # noqa: ANN401 - JSON of any kind
        """Masked: people who look at jobs need not see whom they are for."""
        try:
            return masked_job(json.loads(body))
        except (ValueError, RecursionError):
            return masked_job(body)

    def letter_body(self, body: str) -> str:
        """Masked too: a dead letter is for reading, and a replay runs what the ledger holds."""
        return json.dumps(self.readable(body), ensure_ascii=False, separators=(",", ":"))

    def dead_letter_payload(self, letter: DeadLetter) -> Mapping[str, Any]:
        """The dead-letter contract of ``email:send:dlq``."""
        return dead_letter_payload(letter, self.readable(letter.body))


def _already_sent(known: Mapping[str, Any]) -> dict[str, str]:
    """What a job returns whose email is out, by the log or by an earlier result."""
    return {"status": "ALREADY_SENT", "sesMessageId": str(known.get("sesMessageId") or "")}


def _per_second(rate: float) -> RateLimit:
    """An even flow; less than one in a second is one in more seconds."""
    return RateLimit(1, timedelta(seconds=1 / rate))


@contextlib.asynccontextmanager
async def _no_permit() -> AsyncIterator[None]:
    yield
