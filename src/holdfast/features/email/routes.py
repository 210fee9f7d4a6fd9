"""``/v1/email``: tenants send emails, read their status, and cancel emails that still wait.

The API key is checked before the body is read. For a tenant, the emails of other tenants do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast import Admitted, FieldProblem, HoldfastError, NotFound, Page, RecordQuery
from holdfast.feature import Principal, Receipt, Sender, Services
from holdfast.http import (
    CONTENT_LENGTH,
    INTAKE_CODES,
    JSON_TYPE,
    TRACE,
    Code,
    FeatureRoutes,
    Frame,
    Refusal,
    Routes,
    batch_response,
    header,
    intake_refusal_of,
    json_body,
    pick,
    read_body,
    refusal_of_any,
    refusals,
    strict_json,
    tenant_of,
)
from holdfast.views import add_example

from .admission import UnknownRecipient, UnknownReference
from .feature import EMAIL_PATH, SEND_PATH, EmailService, Scope
from .notifications import NotificationRefused
from .records import OUTBOX, EmailStatus
from .request import EmailSendBody
from .suppression import RecipientSuppressed
from .views import (
    CancelView,
    EmailBatchAnswers,
    EmailList,
    EmailReceipt,
    EmailView,
    NotificationView,
    instant_of,
    status_of,
)

BATCH_PATH: Final = f"{EMAIL_PATH}/batch"
EVENTS_PATH: Final = f"{EMAIL_PATH}/events/ses"
MAX_BATCH: Final = 500
_MOST_BATCH_VALUES: Final = MAX_BATCH * 100
MAX_NOTIFICATION: Final = 1024 * 1024

_IDEMPOTENCY_KEY: Final = b"idempotency-key"
_KEY_PATTERN: Final = r"^[!-~]{1,255}$"
_ITEM_KEY: Final = "idempotencyKey"
_KEY_HEADER: Final = header(
    "idempotency-key",
    "Two requests with the same key are duplicates. Use an id that says nothing about a person.",
    "boleto-2026-11-0001",
    pattern=_KEY_PATTERN,
)
_ABOUT: Final = "Emails of tenants. Needs an API key. The emails of other tenants count as not found."
_MAX_PAGE: Final = 200
_CONCURRENT_ADMISSIONS: Final = 32
"""How many emails of one batch are admitted at the same time. Each may read the store and store its HTML."""

OutboxId = Annotated[str, Path(alias="outboxId", examples=["5d3f7a52-9c1e-5b77-8f0a-3b1f6f0c2e11"])]


class EmailListing(BaseModel):
    """A page of the tenant's emails."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    status: EmailStatus | None = None
    limit: int = Field(default=50, ge=1, le=_MAX_PAGE)
    cursor: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="The `next` of the page before."
    )


class EmailBatchItem(EmailSendBody):
    """One email of a batch."""

    idempotencyKey: Annotated[str, Field(pattern=_KEY_PATTERN)] = Field(  # noqa: N815 - a field of the wire
        default_factory=str, description="Instead of the header `Idempotency-Key`."
    )


class EmailBatch(BaseModel):
    """Many emails. Each is accepted or refused on its own."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=add_example)

    emails: Annotated[list[EmailBatchItem], Field(min_length=1, max_length=MAX_BATCH)]


def email_routes(email: EmailService, frame: Frame) -> FeatureRoutes:
    """Send one email or many, read, cancel; and receive the provider's notifications."""
    routes = Routes("email", _ABOUT)
    _add_sending(routes, email, frame)
    _add_notifications(routes, email)
    _add_reading(routes, email.services, frame)
    _add_cancelling(routes, email, frame)
    return FeatureRoutes([routes])


# --- sending ----------------------------------------------------------------------------------------------------


def _add_sending(routes: Routes, email: EmailService, frame: Frame) -> None:
    guarded = [frame.tenants_only(Scope.EMAIL_SEND)]
    intake = _EmailIntake(email, frame)

    @routes.post(
        SEND_PATH,
        status_code=202,
        dependencies=guarded,
        summary="Send an email",
        description=_SEND,
        responses=refusals(*INTAKE_CODES, RecipientSuppressed.code, UnknownReference.code, UnknownRecipient.code),
        openapi_extra={"parameters": [_KEY_HEADER]},
    )
    async def send_email(
        request: Request,
        key: Annotated[str | None, Depends(_idempotency_key)],
        body: object = json_body(limit=email.max_body_bytes, like=EmailSendBody),
    ) -> EmailReceipt:
        try:
            admitted = await intake.admit(body, tenant_of(request), key, request.scope[TRACE])
            return await intake.accept(admitted, tenant_of(request).sender)
        except HoldfastError as error:
            raise intake_refusal_of(error) from error

    @routes.post(
        BATCH_PATH,
        status_code=207,
        response_model=EmailBatchAnswers,
        dependencies=guarded,
        summary="Send many emails",
        description=_BATCH,
    )
    async def send_batch(
        request: Request,
        body: object = json_body(limit=email.max_batch_bytes, like=EmailBatch, most_values=_MOST_BATCH_VALUES),
    ) -> Response:
        trace_id = request.scope[TRACE]
        results = await intake.accept_all(_emails_of(body), tenant_of(request), trace_id)
        return await batch_response(EmailBatchAnswers, results, trace_id)

    for path in (SEND_PATH, BATCH_PATH):
        routes.only_post(path)


async def _idempotency_key(request: Request) -> str | None:
    headers, repeated = pick(request.scope["headers"], frozenset({_IDEMPOTENCY_KEY}))
    if repeated:
        raise Refusal(Code.INVALID_PAYLOAD, "There must be only one Idempotency-Key.")
    key = headers.get(_IDEMPOTENCY_KEY)
    return None if key is None else key.decode("latin-1")


class _EmailIntake:
    """Admits emails and records them. The emails of a batch share commits."""

    def __init__(self, email: EmailService, frame: Frame) -> None:
        self._services = email.services
        self._email = email
        self._frame = frame

    async def admit(self, body: object, who: Principal, key: str | None, trace_id: str, *, ahead: int = 0) -> Admitted:
        """The job of an email. ``ahead`` is the number of emails before it in its batch."""
        # Before the HTML is stored: a folder or a bucket would keep the HTML of an email that a limit refuses.
        await self._services.limits.check_jobs(who.sender, ahead)
        return await self._email.admission.admit(
            body,
            company_id=who.company_id,
            idempotency_key=key,
            request_id=trace_id,
            received_at=self._services.clock.now(),
        )

    async def accept(self, admitted: Admitted, sender: Sender) -> EmailReceipt:
        """Record the email. Raises a refusal for an idempotency key that another email has."""
        receipt = await self._frame.accept(
            self._email.workload,
            admitted.data,
            priority=admitted.priority,
            delay=admitted.delay,
            effects=admitted.effects,
            sender=sender,
        )
        return await self._receipt(receipt, admitted)

    async def accept_all(self, emails: Sequence[object], who: Principal, trace_id: str) -> list[EmailReceipt | Refusal]:
        """One answer for each email, in order. An invalid email does not affect the others."""
        permits = asyncio.Semaphore(_CONCURRENT_ADMISSIONS)
        # The request was counted as one. Its emails count like as many requests.
        self._services.limits.count_more(who.sender, len(emails) - 1)

        async def admit_one(position: int, item: object) -> Admitted | Refusal:
            async with permits:
                try:
                    return await self.admit(*_split_item(item, who), trace_id, ahead=position)
                except Exception as error:  # noqa: BLE001 - the outermost frame of one email: every error gets an answer
                    return refusal_of_any(error, trace_id)

        async def accept_one(each: Admitted | Refusal) -> EmailReceipt | Refusal:
            if isinstance(each, Refusal):
                return each
            try:
                return await self.accept(each, who.sender)
            except Exception as error:  # noqa: BLE001 - as above
                return refusal_of_any(error, trace_id)

        # All emails are admitted before the first is recorded. So they are recorded in their order: the second of two
        # equal emails is the duplicate. And they share as few commits as possible.
        admitted = await asyncio.gather(*map(admit_one, range(len(emails)), emails))
        return await asyncio.gather(*map(accept_one, admitted))

    async def _receipt(self, receipt: Receipt, admitted: Admitted) -> EmailReceipt:
        """The receipt. A duplicate gets the values of the first email."""
        duplicate = receipt.duplicate
        outbox: Mapping[str, Any] = {}
        if duplicate:
            outbox = await self._services.store.get(OUTBOX, receipt.job_id) or {}
            status, scheduled_for = status_of(outbox), instant_of(outbox, "scheduledFor")
        else:
            status = EmailStatus.ENQUEUED if receipt.queued else EmailStatus.PENDING
            scheduled_for = admitted.due
        return EmailReceipt(
            outbox_id=receipt.job_id,
            job_id=receipt.job_id,
            request_id=outbox.get("requestId") or getattr(admitted.data, "requestId", ""),
            status=status,
            duplicate=duplicate,
            queued=receipt.queued,
            received_at=receipt.received_at,
            scheduled_for=scheduled_for,
        )


def _emails_of(body: object) -> list[object]:
    if not isinstance(body, dict) or set(body) != {"emails"} or not isinstance(body["emails"], list):
        raise Refusal(Code.INVALID_PAYLOAD, 'The body must be an object with one field, "emails", which is a list.')
    emails: list[object] = body["emails"]
    if not 1 <= len(emails) <= MAX_BATCH:
        raise Refusal(Code.INVALID_PAYLOAD, f"A batch has 1 to {MAX_BATCH} emails.")
    return emails


def _split_item(item: object, who: Principal) -> tuple[object, Principal, str | None]:
    """The email and the idempotency key of one item."""
    if not isinstance(item, dict) or _ITEM_KEY not in item:
        return item, who, None
    rest = {name: value for name, value in item.items() if name != _ITEM_KEY}
    key = item[_ITEM_KEY]
    # A key that is not text becomes an empty key: the admission refuses both for the same reason.
    return rest, who, key if isinstance(key, str) else ""


# --- reading and cancelling -------------------------------------------------------------------------------------


def _add_reading(routes: Routes, services: Services, frame: Frame) -> None:
    guarded = [frame.tenants_only(Scope.EMAIL_READ)]

    @routes.get(EMAIL_PATH, dependencies=guarded, summary="List your emails, newest first")
    async def list_emails(request: Request, listing: Annotated[EmailListing, Query()]) -> EmailList:
        where: dict[str, Any] = {"companyId": tenant_of(request).company_id}
        if listing.status is not None:
            where["status"] = listing.status.value
        query = RecordQuery(collection=OUTBOX, where=where, newest_by="enqueuedAt")
        found = await services.store.find_records(query, Page(listing.limit, listing.cursor))
        return EmailList(items=[EmailView.of(each) for each in found.items], next=found.next)

    @routes.get(f"{EMAIL_PATH}/{{outboxId}}", dependencies=guarded, summary="Show one of your emails")
    async def show_email(request: Request, outbox_id: OutboxId) -> EmailView:
        return EmailView.of(await _own(services, tenant_of(request), outbox_id))


def _add_cancelling(routes: Routes, email: EmailService, frame: Frame) -> None:
    services = email.services
    guarded = [frame.tenants_only(Scope.EMAIL_CANCEL)]

    @routes.post(
        f"{EMAIL_PATH}/{{outboxId}}/cancel",
        dependencies=guarded,
        summary="Cancel an email that still waits",
        description=_CANCEL,
        responses=refusals(Code.TOO_LATE_TO_CANCEL),
    )
    async def cancel_email(request: Request, outbox_id: OutboxId) -> CancelView:
        who = tenant_of(request)
        await _own(services, who, outbox_id)
        if not await services.cancellation.cancel(email.workload, outbox_id):
            status = status_of(await _own(services, who, outbox_id))
            # Cancelling twice is allowed: the second answer equals the first.
            if status is not EmailStatus.CANCELLED:
                raise _too_late(status)
        return CancelView(outbox_id=outbox_id)


def _too_late(status: EmailStatus) -> Refusal:
    """The refusal for an email that no longer waits."""
    message = f"The email is {status.value}: it does not wait any more."
    return Refusal(Code.TOO_LATE_TO_CANCEL, message, details=[FieldProblem("status", status.value)])


async def _own(services: Services, who: Principal, outbox_id: str) -> Mapping[str, Any]:
    """The tenant's email. An email of another tenant counts as not found."""
    record = await services.store.get(OUTBOX, outbox_id)
    if record is None or record.get("companyId") != who.company_id:
        raise NotFound
    return record


# --- notifications ----------------------------------------------------------------------------------------------


def _add_notifications(routes: Routes, email: EmailService) -> None:
    @routes.post(
        EVENTS_PATH,
        summary="Receive a notification of Amazon SNS",
        description=_EVENTS,
        responses=refusals(NotificationRefused.code, Code.SERVICE_UNAVAILABLE),
        openapi_extra={"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": _NOTIFICATION}}}},
    )
    async def take_notification(request: Request) -> NotificationView:
        # SNS sends its JSON as text/plain.
        headers, _ = pick(request.scope["headers"], frozenset({CONTENT_LENGTH}))
        raw = await read_body(request.receive, headers.get(CONTENT_LENGTH), MAX_NOTIFICATION)
        suppressed = await email.feedback.receive(strict_json.parse(raw), email.services.clock.now())
        return NotificationView(suppressed=suppressed)


_SEND: Final = """\
The email is recorded, then sent once, or it ends with a reason that you can read. Emails with the same
`Idempotency-Key` (1 to 255 visible ASCII characters) are duplicates. Without a key, emails with the same recipient and
the same content are duplicates. A duplicate gets the first receipt and `duplicate: true`. Another email under the same
key gets 409.

At least one identifier is needed for the recipient: `recipientId` (of a recipient of an earlier email; an unknown id is
refused with 422), `externalId`, `cpfCnpj` or `cpfCnpjHash`.

The HTML is stored, and the job refers to it. `htmlRef` refers to the HTML of an earlier email. A clear CPF or CNPJ is
accepted in `recipient.cpfCnpj` only. The answer lists all problems of a body at once."""
_BATCH: Final = """\
Each email is accepted or refused on its own, as if it had been sent alone. The answers have the order of the request.
An item may have an `idempotencyKey` instead of the header."""
_CANCEL: Final = """\
A waiting email will not be sent. It may wait in the queue, for its time or for another attempt. An email that is being
sent, was sent or has ended is answered with 409 and its status. Cancelling twice gives the same answer as once."""
_EVENTS: Final = """\
For Amazon SNS: bounces and complaints of SES put addresses on the suppression list. The message must be signed by
Amazon, and its topic must be in `EMAIL_SNS_TOPICS`. No API key is needed."""
_NOTIFICATION: Final = {"type": "object", "description": "A message of Amazon SNS."}
