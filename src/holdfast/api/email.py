"""``/v1/email``: tenants hand in emails, see what became of them, and take back those that still wait.

A request shows an API key before anything of its body is read. What one tenant has does not exist for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.contracts.admission import Admitted, FieldProblem
from holdfast.contracts.errors import HoldfastError, NotFound
from holdfast.contracts.ledger import RecordedAs
from holdfast.contracts.queries import Page, RecordQuery
from holdfast.contracts.tenants import Principal, Scope
from holdfast.engine.intake import Receipt

from . import strict_json
from .email_views import (
    BatchAnswer,
    BatchView,
    CancelView,
    EmailList,
    EmailReceipt,
    EmailStatus,
    EmailView,
    NotificationView,
    instant_of,
    status_of,
)
from .errors import Code, Refusal, intake_refusal_of
from .reading import BODY_HEADERS, CONTENT_LENGTH, TRACE, pick, read_body, require_plain_json
from .services import ApiServices, EmailServices
from .tenant_guard import TenantGuard, tenant_of
from .unexpected import report_unexpected
from .views import ErrorView

EMAIL_PATH: Final = "/v1/email"
SEND_PATH: Final = f"{EMAIL_PATH}/send"
BATCH_PATH: Final = f"{EMAIL_PATH}/batch"
EVENTS_PATH: Final = f"{EMAIL_PATH}/events/ses"
OUTBOX: Final = "email_outbox"
MAX_BATCH: Final = 500
MAX_NOTIFICATION: Final = 1024 * 1024

_IDEMPOTENCY_KEY: Final = b"idempotency-key"
_KEY_OF_AN_ITEM: Final = "idempotencyKey"
_MAX_PAGE: Final = 200
_AT_A_TIME: Final = 32
"""Emails of one batch that are looked at side by side: each may ask the store, and put its HTML somewhere."""

OutboxId = Annotated[str, Path(alias="outboxId", examples=["5d3f7a52-9c1e-5b77-8f0a-3b1f6f0c2e11"])]


class EmailListing(BaseModel):
    """A page of the tenant's emails."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    status: EmailStatus | None = None
    limit: int = Field(default=50, ge=1, le=_MAX_PAGE)
    cursor: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="The `next` of the page before."
    )


def no_email_routes(why: str | None) -> APIRouter:
    """Every path says that there is no email here, and why."""
    routes = APIRouter(include_in_schema=False)
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]

    @routes.api_route(EMAIL_PATH, methods=methods)
    @routes.api_route(f"{EMAIL_PATH}/{{rest:path}}", methods=methods)
    async def nothing_here() -> None:
        reason = why or "`holdfast doctor` tells what is missing."
        raise Refusal(Code.NOT_FOUND, f"Emails are not set up here: {reason}")

    return routes


def email_routes(services: ApiServices, email: EmailServices) -> APIRouter:
    """Send, send many, read, cancel; and the provider's notifications."""
    routes = APIRouter(tags=["email"])
    _add_sending(routes, services, email)
    _add_notifications(routes, services, email)
    _add_reading(routes, services, email)
    _add_cancelling(routes, services, email)
    return routes


# --- sending ----------------------------------------------------------------------------------------------------


def _add_sending(routes: APIRouter, services: ApiServices, email: EmailServices) -> None:
    guarded = [Depends(TenantGuard(email.tenants, Scope.EMAIL_SEND))]
    desk = _Desk(services, email)

    @routes.post(SEND_PATH, status_code=202, dependencies=guarded, summary="Send an email", description=_SEND)
    async def send_email(request: Request) -> EmailReceipt:
        headers, repeated = pick(request.scope["headers"], BODY_HEADERS | {_IDEMPOTENCY_KEY})
        if _IDEMPOTENCY_KEY in repeated:
            raise Refusal(Code.INVALID_PAYLOAD, "There must be one Idempotency-Key, not several.")
        key = headers.get(_IDEMPOTENCY_KEY)
        document = await _document(request, email.max_body_bytes)
        trace_id: str = request.scope[TRACE]
        try:
            text = None if key is None else key.decode("latin-1")
            admitted = await desk.admit(document, tenant_of(request), text, trace_id)
            return await desk.accept(admitted)
        except HoldfastError as error:
            raise intake_refusal_of(error) from error

    @routes.post(BATCH_PATH, status_code=207, dependencies=guarded, summary="Send many emails", description=_BATCH)
    async def send_batch(request: Request) -> BatchView:
        emails = _emails(await _document(request, email.max_batch_bytes))
        return await desk.accept_all(emails, tenant_of(request), request.scope[TRACE])

    for path in (SEND_PATH, BATCH_PATH):
        _only_post(routes, path)


class _Desk:
    """Admits emails and records them: one by one, or many with shared commits."""

    def __init__(self, services: ApiServices, email: EmailServices) -> None:
        self._services = services
        self._email = email

    async def admit(self, document: object, who: Principal, key: str | None, trace_id: str) -> Admitted:
        return await self._email.admission.admit(
            document,
            company_id=who.company_id,
            idempotency_key=key,
            request_id=trace_id,
            received_at=self._services.clock.now(),
        )

    async def accept(self, admitted: Admitted) -> EmailReceipt:
        """Record it. Raises a refusal for an idempotency key that another email has."""
        receipt = await self._services.intake.accept(
            self._email.admission.workload,
            admitted.data,
            priority=admitted.priority,
            delay=admitted.delay,
            effects=admitted.effects,
        )
        if receipt.recorded_as is RecordedAs.CONFLICT:
            raise Refusal(Code.IDEMPOTENCY_CONFLICT)
        return await self._receipt(receipt, admitted)

    async def accept_all(self, emails: Sequence[object], who: Principal, trace_id: str) -> BatchView:
        """One answer for each, in order; what is wrong with one is no matter to the others."""
        turn = asyncio.Semaphore(_AT_A_TIME)

        async def admitted(item: object) -> Admitted | Refusal:
            async with turn:
                try:
                    return await self.admit(*_item(item, who), trace_id)
                except Exception as error:  # noqa: BLE001 - the last frame of this email: whatever it is, it gets an answer
                    return _refusal(error, trace_id)

        async def accepted(each: Admitted | Refusal) -> EmailReceipt | Refusal:
            if isinstance(each, Refusal):
                return each
            try:
                return await self.accept(each)
            except Exception as error:  # noqa: BLE001 - likewise
                return _refusal(error, trace_id)

        # All are admitted before the first is recorded. So they are recorded in their order, and of two equal ones the
        # second is the duplicate; and they share as few commits as possible.
        ready = await asyncio.gather(*map(admitted, emails))
        ends = await asyncio.gather(*map(accepted, ready))
        answers = [_answer(index, end, trace_id) for index, end in enumerate(ends)]
        refused = sum(isinstance(end, Refusal) for end in ends)
        return BatchView(accepted=len(ends) - refused, refused=refused, answers=answers)

    async def _receipt(self, receipt: Receipt, admitted: Admitted) -> EmailReceipt:
        """For a duplicate, the facts are those of the email that stands."""
        duplicate = receipt.recorded_as is RecordedAs.DUPLICATE
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


async def _document(request: Request, limit: int) -> object:
    headers, repeated = pick(request.scope["headers"], BODY_HEADERS)
    require_plain_json(headers, repeated)
    raw = await read_body(request.receive, headers.get(CONTENT_LENGTH), limit)
    return _parsed(raw)


def _parsed(raw: bytes) -> object:
    try:
        return strict_json.parse(raw)
    except strict_json.NotStrictJson as error:
        raise Refusal(Code.INVALID_PAYLOAD, str(error)) from error


def _emails(document: object) -> list[object]:
    if not isinstance(document, dict) or set(document) != {"emails"} or not isinstance(document["emails"], list):
        raise Refusal(Code.INVALID_PAYLOAD, 'The body must be an object with nothing but a list "emails".')
    emails: list[object] = document["emails"]
    if not 1 <= len(emails) <= MAX_BATCH:
        raise Refusal(Code.INVALID_PAYLOAD, f"A batch has 1 to {MAX_BATCH} emails.")
    return emails


def _item(item: object, who: Principal) -> tuple[object, Principal, str | None]:
    """The email and the idempotency key of one item."""
    if not isinstance(item, dict) or _KEY_OF_AN_ITEM not in item:
        return item, who, None
    rest = {name: value for name, value in item.items() if name != _KEY_OF_AN_ITEM}
    key = item[_KEY_OF_AN_ITEM]
    # An empty key breaks the door's rule for keys, which is what to say about one that is no text as well.
    return rest, who, key if isinstance(key, str) else ""


def _refusal(error: Exception, trace_id: str) -> Refusal:
    if isinstance(error, Refusal):
        return error
    refusal = intake_refusal_of(error) if isinstance(error, HoldfastError) else Refusal(Code.INTERNAL_ERROR)
    if refusal.code is Code.INTERNAL_ERROR:
        report_unexpected(error, trace_id)
    return refusal


def _answer(index: int, end: EmailReceipt | Refusal, trace_id: str) -> BatchAnswer:
    if isinstance(end, EmailReceipt):
        return BatchAnswer(index=index, status_code=202, answer=end)
    told = ErrorView.model_validate_json(end.body(trace_id))
    return BatchAnswer(index=index, status_code=end.status, answer=told)


def _only_post(routes: APIRouter, path: str) -> None:
    """These paths look like an outbox id to the reading route; whoever reads them is told what they are for."""

    @routes.get(path, include_in_schema=False)
    async def is_not_an_email() -> None:
        raise Refusal(Code.METHOD_NOT_ALLOWED, headers={"allow": "POST"})


# --- reading and cancelling -------------------------------------------------------------------------------------


def _add_reading(routes: APIRouter, services: ApiServices, email: EmailServices) -> None:
    guarded = [Depends(TenantGuard(email.tenants, Scope.EMAIL_READ))]

    @routes.get(EMAIL_PATH, dependencies=guarded, summary="List your emails, newest first")
    async def list_emails(request: Request, asked: Annotated[EmailListing, Query()]) -> EmailList:
        where: dict[str, Any] = {"companyId": tenant_of(request).company_id}
        if asked.status is not None:
            where["status"] = asked.status.value
        query = RecordQuery(collection=OUTBOX, where=where, newest_by="enqueuedAt")
        found = await services.store.find_records(query, Page(asked.limit, asked.cursor))
        return EmailList(items=[EmailView.of(each) for each in found.items], next=found.next)

    @routes.get(f"{EMAIL_PATH}/{{outboxId}}", dependencies=guarded, summary="Show one of your emails")
    async def show_email(request: Request, outbox_id: OutboxId) -> EmailView:
        return EmailView.of(await _own(services, tenant_of(request), outbox_id))


def _add_cancelling(routes: APIRouter, services: ApiServices, email: EmailServices) -> None:
    guarded = [Depends(TenantGuard(email.tenants, Scope.EMAIL_CANCEL))]

    @routes.post(
        f"{EMAIL_PATH}/{{outboxId}}/cancel",
        dependencies=guarded,
        summary="Cancel an email that still waits",
        description=_CANCEL,
    )
    async def cancel_email(request: Request, outbox_id: OutboxId) -> CancelView:
        who = tenant_of(request)
        await _own(services, who, outbox_id)
        if not await email.cancellation.cancel(email.admission.workload, outbox_id):
            status = status_of(await _own(services, who, outbox_id))
            # Cancelling twice is no mistake: the second answer is the first one's.
            if status is not EmailStatus.CANCELLED:
                raise _too_late(status)
        return CancelView(outbox_id=outbox_id)


def _too_late(status: EmailStatus) -> Refusal:
    """The answer for an email that does not wait."""
    message = f"The email is {status.value}: it does not wait any more."
    return Refusal(Code.TOO_LATE_TO_CANCEL, message, details=[FieldProblem("status", status.value)])


async def _own(services: ApiServices, who: Principal, outbox_id: str) -> Mapping[str, Any]:
    """The tenant's email. That of another tenant is answered as one that does not exist."""
    document = await services.store.get(OUTBOX, outbox_id)
    if document is None or document.get("companyId") != who.company_id:
        raise NotFound
    return document


# --- notifications ----------------------------------------------------------------------------------------------


def _add_notifications(routes: APIRouter, services: ApiServices, email: EmailServices) -> None:
    @routes.post(EVENTS_PATH, summary="Take a notification of Amazon SNS", description=_EVENTS)
    async def take_notification(request: Request) -> NotificationView:
        # SNS calls its JSON text/plain.
        headers, _ = pick(request.scope["headers"], BODY_HEADERS)
        raw = await read_body(request.receive, headers.get(CONTENT_LENGTH), MAX_NOTIFICATION)
        suppressed = await email.feedback.receive(_parsed(raw), services.clock.now())
        return NotificationView(suppressed=suppressed)


_SEND: Final = """\
The email is recorded, then sent once; or it ends with a reason that you can read. `Idempotency-Key` (1 to 255 visible
ASCII characters) decides what is a duplicate; without one, the recipient's identifiers and the content do. The same
email again is answered with the first receipt and `duplicate: true`, another email under the same key with 409.

At least one identifier says who the recipient is: `recipientId` (one that an earlier email has made; an unknown one is
refused with 422), `externalId`, `cpfCnpj` or `cpfCnpjHash`.

The HTML is stored and referred to; `htmlRef` refers to HTML of an earlier email. A CPF or CNPJ in clear is accepted in
`recipient.cpfCnpj` only. All problems of a body are told at once."""
_BATCH: Final = """\
Each email is accepted or refused for itself, as if it had been sent alone; the answers come in the order of the
request. An item may have an `idempotencyKey`, in the place of the header."""
_CANCEL: Final = """\
An email that waits, also for its time or for another attempt, will not be sent. One that is being sent, was sent or has
ended is answered with 409 and its status. Cancelling twice is answered as once."""
_EVENTS: Final = """\
For Amazon SNS: bounces and complaints of SES put addresses on the suppression list. The signature of the message must
be Amazon's, and its topic one of `EMAIL_SNS_TOPICS`. Needs no key."""
