"""The way in: a tenant's request becomes a job, and whatever has to be written together with it.

The job carries what seed 004 says and nothing more. The HTML stays behind its reference, where the database keeps it
sealed, and a clear CPF or CNPJ, a name and an address are sealed into ``recipients``. All of it is committed with the
ledger entry or not at all, except HTML in a folder or a bucket: that is put there before, because a job must never
refer to what is not there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from pydantic import BaseModel

from holdfast.contracts.admission import Admitted, FieldProblem, InvalidContent, UnknownRecipient, UnknownReference
from holdfast.contracts.effects import Effect, Upsert
from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.personal_data import find_personal_data
from holdfast.contracts.ports import Records
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Workload

from .content import Content, ContentMissing, ContentUnavailable, content_ref, is_name
from .content_database import facts_of, has_html, html_facts
from .contract import MAX_REQUEST_ID, EmailRecipient, EmailSendJob
from .records import CONTENT, OUTBOX, RECIPIENTS, content_key
from .request import EmailRequest, EmailSendBody, RequestLimits, RequestRecipient, admit_request
from .suppression import Suppressions, address_hash
from .vault import Vault

IDEMPOTENCY_KEY: Final = "Idempotency-Key"

_USABLE_KEY: Final = re.compile(r"[!-~]{1,255}")
_A_DAY: Final = timedelta(days=1)


class EmailAdmission:
    """Admits requests to send an email. ``content`` is where HTML is kept; None: the database keeps it."""

    request_model: type[BaseModel] = EmailSendBody

    def __init__(
        self,
        workload: Workload[EmailSendJob],
        store: Records,
        vault: Vault,
        content: Content | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        self._workload = workload
        self._store = store
        self._vault = vault
        self._content = content
        self._limits = limits or RequestLimits()
        self._suppressions = Suppressions(store, vault)

    @property
    def workload(self) -> Workload[Any]:
        """The workload that the jobs are for."""
        return self._workload

    async def admit(
        self,
        document: object,
        *,
        company_id: str,
        idempotency_key: str | None,
        request_id: str,
        received_at: datetime,
    ) -> Admitted:
        """The job, ready to be recorded.

        The same request of one tenant always makes the same ``outboxId``: by its idempotency key, or else by what
        identifies the recipient and the content. The ledger then knows a duplicate from a conflict (I2).

        Raises :class:`InvalidContent` with every problem of the document, :class:`RecipientSuppressed`,
        :class:`UnknownRecipient`, :class:`UnknownReference`, or :class:`StoreUnavailable` when the HTML cannot be kept
        now.
        """
        request = self._checked(document, idempotency_key, received_at)
        await self._suppressions.refuse(_addresses(request))
        await self._refuse_unknown(request.recipient.recipient_id, company_id)
        outbox_id = self._outbox_id(request, company_id, idempotency_key)
        ref, kept = await self._kept_html(request, company_id, received_at)
        recipient, sealed = self._recipient(request.recipient, company_id)
        delay = _delay(request, received_at)
        due = received_at + delay if delay else None
        job = EmailSendJob(
            outboxId=outbox_id,
            companyId=company_id,
            requestId=request_id if _may_travel(request_id) else f"req-{outbox_id}",
            to=request.to,
            cc=request.cc or None,
            bcc=request.bcc or None,
            subject=request.subject,
            htmlRef=ref,
            replyTo=request.reply_to,
            headers=dict(request.headers) or None,
            tags=request.tags or None,
            recipient=recipient,
            attempt=1,
            enqueuedAt=received_at,
        )
        told = {
            "priority": request.priority,
            "scheduledFor": None if due is None else isoformat(due),
            "toHash": address_hash(self._vault, request.to),
        }
        effects: list[Effect] = [Upsert(OUTBOX, outbox_id, told), sealed, *kept]
        return Admitted(job, request.priority, delay, due, effects)

    # --- what is asked ------------------------------------------------------------------------------------

    def _checked(self, document: object, idempotency_key: str | None, now: datetime) -> EmailRequest:
        problems = list(_key_problems(idempotency_key))
        try:
            request = admit_request(document, limits=self._limits, now=now)
        except InvalidContent as error:
            raise InvalidContent([*problems, *error.problems]) from None
        ttl = self._workload.ttl
        if ttl is not None and _delay(request, now) >= ttl:
            field = "delay" if request.send_at is None else "sendAt"
            problems.append(FieldProblem(field, "is later than the email could still be sent"))
        if problems:
            raise InvalidContent(problems)
        return request

    def _outbox_id(self, request: EmailRequest, company_id: str, idempotency_key: str | None) -> str:
        if idempotency_key is not None:
            return _derived("outbox/key", company_id, idempotency_key)
        # The content holds whatever identifies the recipient, a tax number as its keyed hash. The external id stands
        # here once more because it has always done so: an email that was accepted before must be known again.
        return _derived(
            "outbox/content", company_id, request.recipient.external_id or "", request.content_hash(self._vault)
        )

    # --- its HTML -----------------------------------------------------------------------------------------

    async def _kept_html(self, request: EmailRequest, company_id: str, now: datetime) -> tuple[str, list[Effect]]:
        """The reference to the HTML, and what has to be written for it to last as long as the job may need it."""
        html = request.html
        ref = content_ref(company_id, html) if html is not None else request.html_ref or ""
        if html is None and not is_name(ref):
            raise _unknown_reference()
        if self._content is not None:
            await self._keep_elsewhere(self._content, company_id, ref, html)
            return ref, []
        if html is not None:
            facts = html_facts(self._vault, company_id, ref, html)
        else:
            kept = await self._store.get(CONTENT, content_key(company_id, ref))
            if not has_html(kept):
                raise _unknown_reference()
            facts = facts_of(kept)  # should it be forgotten before this email is recorded, it comes back whole
        # Longer than any dead letter of the job, which a person may replay.
        ttl = self._workload.ttl or timedelta(0)
        lasts = {"expiresAt": isoformat(now + ttl + self._workload.letter_retention + _A_DAY)}
        return ref, [Upsert(CONTENT, content_key(company_id, ref), lasts, facts)]

    @staticmethod
    async def _keep_elsewhere(content: Content, company_id: str, ref: str, html: str | None) -> None:
        """Put the HTML into a folder or a bucket; without any, see that it is there."""
        try:
            if html is not None:
                await content.put(company_id, ref, html)
            elif not await content.exists(company_id, ref):
                raise _unknown_reference()
        except ContentMissing:
            raise _unknown_reference() from None
        except ContentUnavailable as error:
            raise StoreUnavailable(error.message) from error

    # --- its recipient ------------------------------------------------------------------------------------

    async def _refuse_unknown(self, recipient_id: str | None, company_id: str) -> None:
        """A recipient who is named by our own id must be there: of this tenant, and not forgotten since."""
        if recipient_id is None:
            return
        kept = await self._store.get(RECIPIENTS, recipient_id)
        if kept is None or kept.get("companyId") != company_id or kept.get("erasedAt") is not None:
            raise UnknownRecipient([FieldProblem("recipient.recipientId", "names no recipient of this tenant")])

    def _recipient(self, person: RequestRecipient, company_id: str) -> tuple[EmailRecipient, Upsert]:
        """The recipient as the job names it, and the record that holds what the job must not carry."""
        document_hash = person.document_hash(self._vault)
        if person.recipient_id is not None:
            recipient_id = person.recipient_id
        elif document_hash is not None:
            recipient_id = _derived("recipient/cpfCnpj", company_id, document_hash)
        else:
            recipient_id = _derived("recipient/externalId", company_id, person.external_id or "")
        sealed = {
            "cpfCnpjSealed": None if person.document is None else person.document[1],
            "emailSealed": person.email,
            "nomeSealed": person.nome,
            "razaoSocialSealed": person.razao_social,
        }
        facts: dict[str, Any] = {
            "externalId": person.external_id,
            "cpfCnpjHash": document_hash,
            **{
                name: self._vault.seal(clear, context=seal_context(company_id, recipient_id, name))
                for name, clear in sealed.items()
                if clear is not None
            },
        }
        # What this request does not tell stays as an earlier one told it.
        known = {name: value for name, value in facts.items() if value is not None}
        known |= {"companyId": company_id, "emailHash": address_hash(self._vault, person.email), "erasedAt": None}
        recipient = EmailRecipient(
            recipientId=recipient_id,
            externalId=person.external_id,
            cpfCnpjHash=document_hash,
            razaoSocial=person.razao_social,
            nome=person.nome,
            email=person.email,
        )
        return recipient, Upsert(RECIPIENTS, recipient_id, known)


def _may_travel(request_id: str) -> bool:
    """Whether the job can carry the id of its request: a tenant may have made it up, of anything and at any length."""
    return len(request_id) <= MAX_REQUEST_ID and find_personal_data(request_id) is None


def _unknown_reference() -> UnknownReference:
    return UnknownReference([FieldProblem("htmlRef", "refers to no HTML of this tenant")])


def seal_context(company_id: str, recipient_id: str, field: str) -> str:
    """What binds a sealed value to its one place: moved to another record or field, it does not open."""
    return f"{RECIPIENTS}/{company_id}/{recipient_id}/{field}"


def _derived(*parts: str) -> str:
    """A UUID in the layout of version 5, but from SHA-256; a different list of parts gives a different one."""
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return str(uuid.UUID(bytes=sha256(text.encode()).digest()[:16], version=5))


def _addresses(request: EmailRequest) -> Iterator[tuple[str, str]]:
    yield "to", request.to
    for name, addresses in (("cc", request.cc), ("bcc", request.bcc)):
        for position, address in enumerate(addresses):
            yield f"{name}.{position}", address


def _delay(request: EmailRequest, now: datetime) -> timedelta:
    if request.send_at is not None:
        return max(request.send_at - now, timedelta(0))
    return request.delay or timedelta(0)


def _key_problems(idempotency_key: str | None) -> Iterator[FieldProblem]:
    if idempotency_key is None:
        return
    if _USABLE_KEY.fullmatch(idempotency_key) is None:
        yield FieldProblem(IDEMPOTENCY_KEY, "must have 1 to 255 visible ASCII characters")
    elif (kind := find_personal_data(idempotency_key)) is not None:
        yield FieldProblem(IDEMPOTENCY_KEY, f"holds a {kind.value}; use an id that tells nothing about a person")
