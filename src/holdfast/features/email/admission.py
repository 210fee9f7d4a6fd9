"""The admission of emails: a tenant's request becomes a job, and the records that are committed with it.

The job has the fields of the specification only (E10). It refers to its HTML, which the database keeps sealed. A clear
CPF or CNPJ, a name and an address are sealed into ``recipients``. All records are committed together with the ledger
entry, or none of them. The exception is HTML in a folder or a bucket: it is stored first, because a job must never
refer to HTML that does not exist.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from holdfast import (
    Admitted,
    Effect,
    ErrorCode,
    FieldProblem,
    InvalidContent,
    NotAcceptable,
    StoreUnavailable,
    Upsert,
    Workload,
    find_personal_data,
    isoformat,
)
from holdfast.blobs import Effects, is_plain
from holdfast.feature import Store

from .content import Content, ContentMissing, ContentUnavailable, content_in_database, content_ref
from .contract import MAX_REQUEST_ID, EmailRecipient, EmailSendJob
from .records import OUTBOX, RECIPIENTS
from .request import EmailSendBody, RecipientBody, RequestLimits, admit_request
from .suppression import Suppressions, address_hash
from .vault import Vault

IDEMPOTENCY_KEY: Final = "Idempotency-Key"

_USABLE_KEY: Final = re.compile(r"[!-~]{1,255}")
_A_DAY: Final = timedelta(days=1)


class UnknownReference(NotAcceptable):
    """The request refers to something that its sender does not have."""

    code = ErrorCode("UNKNOWN_HTML_REF", 422, "The htmlRef refers to no HTML of this tenant.")


class UnknownRecipient(NotAcceptable):
    """The request names a recipient that its sender does not have."""

    code = ErrorCode("UNKNOWN_RECIPIENT", 422, "The recipientId names no recipient of this tenant.")


class EmailAdmission:
    """Admits requests to send an email. ``content`` stores the HTML; None: the database stores it."""

    def __init__(
        self,
        workload: Workload[EmailSendJob],
        store: Store,
        vault: Vault,
        content: Content | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        self._workload = workload
        self._store = store
        self._vault = vault
        self._content = content or content_in_database(vault)
        self._limits = limits or RequestLimits()
        self._suppressions = Suppressions(store, vault)

    async def admit(
        self,
        body: object,
        *,
        company_id: str,
        idempotency_key: str | None,
        request_id: str,
        received_at: datetime,
    ) -> Admitted:
        """The job, ready to be recorded.

        The same request of one tenant always gets the same ``outboxId``. It is made from the idempotency key; without a
        key, from the recipient and the content. So the ledger can tell a duplicate from a conflict (I2).

        Raises :class:`InvalidContent` with every problem of the body, :class:`RecipientSuppressed`,
        :class:`UnknownRecipient`, :class:`UnknownReference`, or :class:`StoreUnavailable` when the HTML cannot be
        stored now.
        """
        request = self._check(body, idempotency_key, received_at)
        await self._suppressions.refuse(_addresses(request), company_id)
        await self._refuse_unknown(request.recipient.recipientId, company_id)
        outbox_id = self._outbox_id(request, company_id, idempotency_key)
        ref, stored = await self._store_html(request, company_id, outbox_id, received_at)
        recipient, sealed = self._recipient(request.to, request.recipient, company_id)
        delay = request.wait(received_at)
        due = received_at + delay if delay else None
        job = EmailSendJob(
            outboxId=outbox_id,
            companyId=company_id,
            requestId=request_id if _is_usable(request_id) else f"req-{outbox_id}",
            to=request.to,
            cc=request.cc or None,
            bcc=request.bcc or None,
            subject=request.subject,
            htmlRef=ref,
            replyTo=request.replyTo,
            headers=request.headers or None,
            tags=request.tags or None,
            recipient=recipient,
            attempt=1,
            enqueuedAt=received_at,
        )
        outbox = {
            "priority": request.priority,
            "scheduledFor": None if due is None else isoformat(due),
            "toHash": address_hash(self._vault, request.to),
        }
        effects: list[Effect] = [Upsert(OUTBOX, outbox_id, outbox), sealed, *stored]
        return Admitted(job, request.priority, delay, due, effects)

    # --- the request -------------------------------------------------------------------------------------

    def _check(self, body: object, idempotency_key: str | None, now: datetime) -> EmailSendBody:
        problems = list(_key_problems(idempotency_key))
        try:
            request = admit_request(body, limits=self._limits, now=now)
        except InvalidContent as error:
            raise InvalidContent([*problems, *error.problems]) from None
        ttl = self._workload.ttl
        if ttl is not None and request.wait(now) >= ttl:
            field = "delay" if request.sendAt is None else "sendAt"
            problems.append(FieldProblem(field, "is after the deadline of the email"))
        if problems:
            raise InvalidContent(problems)
        return request

    def _outbox_id(self, request: EmailSendBody, company_id: str, idempotency_key: str | None) -> str:
        if idempotency_key is not None:
            return _derived("outbox/key", company_id, idempotency_key)
        # The content includes all identifiers of the recipient, and a tax number as its keyed hash. The external id is
        # added again for compatibility: an email that an older version accepted must get the same id.
        return _derived(
            "outbox/content", company_id, request.recipient.externalId or "", request.content_hash(self._vault)
        )

    # --- the HTML -----------------------------------------------------------------------------------------

    async def _store_html(
        self, request: EmailSendBody, company_id: str, outbox_id: str, now: datetime
    ) -> tuple[str, Effects]:
        """The reference to the HTML, and the effects that keep the HTML as long as the job may need it."""
        # The HTML is kept longer than any dead letter of the job, because a person may replay the letter.
        until = now + (self._workload.ttl or timedelta(0)) + self._workload.letter_retention + _A_DAY
        html, ref = request.html, request.htmlRef or ""
        try:
            if html is not None:
                ref = content_ref(company_id, html)
                if await self._is_refused_later(outbox_id, ref):
                    return ref, ()
                return ref, await self._content.put(company_id, ref, html, until=until)
            if is_plain(ref):
                return ref, await self._content.hold(company_id, ref, self._store, until=until)
        except ContentMissing:
            pass
        except ContentUnavailable as error:
            raise StoreUnavailable(error.message) from error
        raise UnknownReference([FieldProblem("htmlRef", "refers to no HTML of this tenant")])

    async def _is_refused_later(self, outbox_id: str, ref: str) -> bool:
        """Whether the ledger will refuse the email: its key belongs to an email with other HTML.

        The HTML is not stored then. It cannot be deleted after the refusal: an accepted email may have the same HTML.
        """
        if not self._content.writes_at_once:
            return False
        entry = await self._store.entry(self._workload.name, outbox_id)
        return entry is not None and ref not in entry.body

    # --- the recipient ------------------------------------------------------------------------------------

    async def _refuse_unknown(self, recipient_id: str | None, company_id: str) -> None:
        """A ``recipientId`` must belong to a recipient of this tenant who was not erased."""
        if recipient_id is None:
            return
        kept = await self._store.get(RECIPIENTS, recipient_id)
        if kept is None or kept.get("companyId") != company_id or kept.get("erasedAt") is not None:
            raise UnknownRecipient([FieldProblem("recipient.recipientId", "names no recipient of this tenant")])

    def _recipient(self, to: str, person: RecipientBody, company_id: str) -> tuple[EmailRecipient, Upsert]:
        """The recipient of the job, and the record with the data that the job must not contain."""
        document_hash = person.document_hash(self._vault)
        if person.recipientId is not None:
            recipient_id = person.recipientId
        elif document_hash is not None:
            recipient_id = _derived("recipient/cpfCnpj", company_id, document_hash)
        else:
            recipient_id = _derived("recipient/externalId", company_id, person.externalId or "")
        sealed = {
            "cpfCnpjSealed": person.document,
            "emailSealed": to,
            "nomeSealed": person.nome,
            "razaoSocialSealed": person.razaoSocial,
        }
        facts: dict[str, Any] = {
            "externalId": person.externalId,
            "cpfCnpjHash": document_hash,
            **{
                name: self._vault.seal(clear, context=seal_context(company_id, recipient_id, name))
                for name, clear in sealed.items()
                if clear is not None
            },
        }
        # A field that this request does not have keeps the value of an earlier request.
        changed = {name: value for name, value in facts.items() if value is not None}
        changed |= {"companyId": company_id, "emailHash": address_hash(self._vault, to), "erasedAt": None}
        recipient = EmailRecipient(
            recipientId=recipient_id,
            externalId=person.externalId,
            cpfCnpjHash=document_hash,
            razaoSocial=person.razaoSocial,
            nome=person.nome,
            email=to,
        )
        return recipient, Upsert(RECIPIENTS, recipient_id, changed)


def _is_usable(request_id: str) -> bool:
    """Whether the job may have this request id. Tenants choose it: it may be too long or hold personal data."""
    return len(request_id) <= MAX_REQUEST_ID and find_personal_data(request_id) is None


def seal_context(company_id: str, recipient_id: str, field: str) -> str:
    """The context of a sealed value: in another record or field, the value cannot be opened."""
    return f"{RECIPIENTS}/{company_id}/{recipient_id}/{field}"


def _derived(*parts: str) -> str:
    """A UUID in the layout of version 5, but from SHA-256. Different parts give different UUIDs."""
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return str(uuid.UUID(bytes=sha256(text.encode()).digest()[:16], version=5))


def _addresses(request: EmailSendBody) -> Iterator[tuple[str, str]]:
    yield "to", request.to
    for name, addresses in (("cc", request.cc), ("bcc", request.bcc)):
        for position, address in enumerate(addresses or ()):
            yield f"{name}.{position}", address


def _key_problems(idempotency_key: str | None) -> Iterator[FieldProblem]:
    if idempotency_key is None:
        return
    if _USABLE_KEY.fullmatch(idempotency_key) is None:
        yield FieldProblem(IDEMPOTENCY_KEY, "must have 1 to 255 visible ASCII characters")
    elif (kind := find_personal_data(idempotency_key)) is not None:
        yield FieldProblem(IDEMPOTENCY_KEY, f"holds a {kind.value}; use an id that says nothing about a person")
