"""The body of ``POST /v1/email/send``: everything that is wrong with it at once, or a request to send one email."""
# ruff: noqa: N815 - the attributes of the body are the fields of the wire, and the wire is written in camelCase

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from holdfast.contracts.admission import FieldProblem, InvalidContent
from holdfast.contracts.personal_data import Kind, normalise_document
from holdfast.contracts.times import duration_ms
from holdfast.contracts.validation import HALF_A_CHARACTER

from . import contract
from .addresses import normalised
from .problems import problems_of
from .texts import is_whole
from .vault import Vault

MAX_PROBLEMS: Final = 50
DOCUMENT_PURPOSE: Final = "cpfCnpj"
"""What a fingerprint of a tax number is made for. The same number has the same hash in every job."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a tenant may ask for. ``ttl`` bounds a delay, ``horizon`` how far ahead a ``sendAt`` may lie."""

    html_bytes: int = 512 * 1024
    ttl: timedelta = timedelta(milliseconds=contract.DEFAULT_TTL)
    horizon: timedelta = timedelta(milliseconds=contract.DEFAULT_TTL)


# --- the body, for validation and for the published schema ----------------------------------------------------


def _document(text: str) -> str:
    try:
        normalise_document(text)
    except ValueError as error:
        kind = "document"
        raise PydanticCustomError(kind, "{problem}", {"problem": str(error)}) from None
    return text


def _readable(html: str) -> str:
    if not html.strip():
        kind, sentence = "blank", "must not be blank"
        raise PydanticCustomError(kind, sentence)
    if not is_whole(html):
        kind, sentence = "string_unicode", HALF_A_CHARACTER
        raise PydanticCustomError(kind, sentence)
    return html


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class RecipientBody(_Body):
    """Whom the email is for, in the tenant's words. A clear CPF or CNPJ may stand in ``cpfCnpj`` and nowhere else."""

    recipientId: Annotated[contract.Uuid | None, Field(description="Of a recipient of an earlier email.")] = None
    externalId: contract.ExternalId | None = None
    cpfCnpj: Annotated[str, StringConstraints(max_length=32), AfterValidator(_document)] | None = None
    cpfCnpjHash: contract.DocumentHash | None = None
    razaoSocial: contract.RazaoSocial | None = None
    nome: contract.Nome | None = None
    email: Annotated[contract.Address | None, Field(description="The same address as to, which is the default.")] = None


class EmailSendBody(_Body):
    """The body of ``POST /v1/email/send``. Rules between fields are in :func:`admit_request`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "to": "cliente@example.com",
                    "subject": "Seu boleto está disponível",
                    "html": "<p>Olá, João! Seu boleto está disponível.</p>",
                    "recipient": {"externalId": "CUST-12345", "nome": "João da Silva"},
                },
            ],
        },
    )

    to: contract.Address
    cc: contract.Copies | None = None
    bcc: contract.Copies | None = None
    subject: contract.Subject
    html: Annotated[str, AfterValidator(_readable)] | None = None
    htmlRef: contract.HtmlRef | None = None
    replyTo: contract.Address | None = None
    headers: dict[str, str] | None = None
    tags: contract.Tags | None = None
    recipient: RecipientBody
    priority: Annotated[int, Field(strict=True, ge=1, le=10)] = contract.DEFAULT_PRIORITY
    delay: Annotated[int | None, Field(strict=True, ge=0, description="Milliseconds.")] = None
    sendAt: contract.Instant | None = None


# --- the request ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class RequestRecipient:
    """Whom the email is for. ``document`` is the checked CPF or CNPJ: its kind, and its digits in clear."""

    email: str
    recipient_id: str | None = None
    external_id: str | None = None
    document: tuple[Kind, str] | None = None
    cpf_cnpj_hash: str | None = None
    razao_social: str | None = None
    nome: str | None = None

    def document_hash(self, vault: Vault) -> str | None:
        """The ``cpfCnpjHash`` that travels: the one that was given, or the fingerprint of the clear number."""
        if self.document is None:
            return self.cpf_cnpj_hash
        return vault.fingerprint(self.document[1], DOCUMENT_PURPOSE)


@dataclass(frozen=True, slots=True, repr=False)
class EmailRequest:
    """One email that a tenant wants sent: every rule for it holds. It shows nothing of itself in its ``repr``."""

    to: str
    subject: str
    recipient: RequestRecipient
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    html: str | None = None
    html_ref: str | None = None
    reply_to: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    priority: int = contract.DEFAULT_PRIORITY
    delay: timedelta | None = None
    send_at: datetime | None = None

    def content_hash(self, vault: Vault) -> str:
        """64 hexadecimal characters, equal for two requests that would send the same email to the same person.

        When it is sent, and how urgently, is not content. The hash is keyed: a plain one over a text that is known but
        for a CPF would give the CPF away.
        """
        person = self.recipient
        content = {
            "to": self.to,
            "cc": self.cc,
            "bcc": self.bcc,
            "subject": self.subject,
            "html": None if self.html is None else sha256(self.html.encode()).hexdigest(),
            "htmlRef": self.html_ref,
            "replyTo": self.reply_to,
            "headers": sorted((name.lower(), value) for name, value in self.headers.items()),
            "tags": self.tags,
            "externalId": person.external_id,
            "cpfCnpjHash": person.document_hash(vault),
            "razaoSocial": person.razao_social,
            "nome": person.nome,
        }
        if person.recipient_id is not None:  # left out otherwise: such requests keep the hashes that they have had
            content["recipientId"] = person.recipient_id
        return vault.fingerprint(json.dumps(content, sort_keys=True), "content")


def admit_request(document: object, *, limits: RequestLimits, now: datetime) -> EmailRequest:
    """The request that this body makes. Raises :class:`InvalidContent` with every problem of it, at most fifty.

    A problem names a field and what is wrong with it, and repeats nothing that the body says (I14).
    """
    problems: list[FieldProblem] = []
    body: EmailSendBody | None = None
    try:
        body = EmailSendBody.model_validate(document)
    except ValidationError as error:
        problems = [FieldProblem(each.field, _with_advice(each.problem)) for each in problems_of(error, "body")]
    if isinstance(document, Mapping):
        problems += _problems_between(document, limits, now)
    if problems or body is None:
        # One for each field and cause, in the order of discovery.
        raise InvalidContent(tuple(dict.fromkeys(problems))[:MAX_PROBLEMS])
    return _request(body)


def _request(body: EmailSendBody) -> EmailRequest:
    person = body.recipient
    return EmailRequest(
        to=body.to,
        subject=body.subject,
        recipient=RequestRecipient(
            email=body.to,
            recipient_id=person.recipientId,
            external_id=person.externalId,
            document=None if person.cpfCnpj is None else normalise_document(person.cpfCnpj),
            cpf_cnpj_hash=person.cpfCnpjHash,
            razao_social=person.razaoSocial,
            nome=person.nome,
        ),
        cc=body.cc or (),
        bcc=body.bcc or (),
        html=body.html,
        html_ref=body.htmlRef,
        reply_to=body.replyTo,
        headers=body.headers or {},
        tags=body.tags or (),
        priority=body.priority,
        delay=None if body.delay is None else timedelta(milliseconds=body.delay),
        send_at=body.sendAt,
    )


# --- problems between fields: looked for in the document itself, so that a wrong field hides none of them -----


def _problems_between(document: Mapping[Any, Any], limits: RequestLimits, now: datetime) -> Iterator[FieldProblem]:
    yield from _content_problems(document, limits)
    yield from _header_problems(document.get("headers"))
    yield from _repeated_addresses(document)
    yield from _recipient_problems(document)
    yield from _time_problems(document, limits, now)


def _content_problems(document: Mapping[Any, Any], limits: RequestLimits) -> Iterator[FieldProblem]:
    html, ref = document.get("html"), document.get("htmlRef")
    if html is None and ref is None:
        yield FieldProblem("html", "is required, unless htmlRef is given")
    if html is not None and ref is not None:
        yield FieldProblem("htmlRef", "must not be given together with html")
    if isinstance(html, str) and len(html.encode("utf-8", "replace")) > limits.html_bytes:
        yield FieldProblem("html", f"must not be longer than {limits.html_bytes} bytes")


def _header_problems(headers: object) -> Iterator[FieldProblem]:
    if not isinstance(headers, Mapping):
        return
    if len(headers) > contract.MAX_HEADERS:
        yield FieldProblem("headers", f"must not be more than {contract.MAX_HEADERS}")
    texts = {name: value for name, value in headers.items() if isinstance(name, str) and isinstance(value, str)}
    for name, problem in contract.header_problems(texts):
        yield FieldProblem(f"headers.{name}", _with_advice(problem))


def _repeated_addresses(document: Mapping[Any, Any]) -> Iterator[FieldProblem]:
    seen: set[str] = set()
    for path, address in _addresses(document):
        if address in seen:
            yield FieldProblem(path, "is an address that the email goes to already")
        seen.add(address)


def _addresses(document: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """The valid addresses that the email would go to, each in its comparable form."""
    given: list[tuple[str, object]] = [("to", document.get("to"))]
    for name in ("cc", "bcc"):
        copies = document.get(name)
        if isinstance(copies, list):
            # More than are allowed are a problem already, and not worth the time.
            given += [(f"{name}.{position}", each) for position, each in enumerate(copies[: contract.MAX_COPIES])]
    for path, value in given:
        comparable = _comparable(value)
        if comparable is not None:
            yield path, comparable


def _recipient_problems(document: Mapping[Any, Any]) -> Iterator[FieldProblem]:
    recipient = document.get("recipient")
    if not isinstance(recipient, Mapping):
        return
    given = {name for name, value in recipient.items() if value is not None}
    if not given & {"recipientId", "externalId", "cpfCnpj", "cpfCnpjHash"}:
        yield FieldProblem("recipient", "needs at least one of recipientId, externalId, cpfCnpj and cpfCnpjHash")
    if {"cpfCnpj", "cpfCnpjHash"} <= given:
        yield FieldProblem("recipient.cpfCnpjHash", "must not be given together with cpfCnpj")
    to, email = _comparable(document.get("to")), _comparable(recipient.get("email"))
    if to is not None and email is not None and to != email:
        yield FieldProblem("recipient.email", "must be the same address as to")


def _time_problems(document: Mapping[Any, Any], limits: RequestLimits, now: datetime) -> Iterator[FieldProblem]:
    delay, send_at = document.get("delay"), document.get("sendAt")
    if delay is not None and send_at is not None:
        yield FieldProblem("sendAt", "must not be given together with delay")
    longest = duration_ms(limits.ttl)
    if isinstance(delay, int) and delay > longest:
        yield FieldProblem("delay", f"must not be longer than {longest} milliseconds")
    instant = contract.read_instant(send_at)
    if instant is None:
        return
    if instant <= now:
        yield FieldProblem("sendAt", "must be in the future")
    elif instant > now + limits.horizon:
        yield FieldProblem("sendAt", f"must not be more than {_hours(limits.horizon)} hours ahead")


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):g}"


def _comparable(value: object) -> str | None:
    try:
        return normalised(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _with_advice(problem: str) -> str:
    """Where a tax number belongs."""
    if problem in {f"holds a {Kind.CPF}", f"holds a {Kind.CNPJ}"}:
        return f"{problem}: put it into recipient.cpfCnpj"
    return problem
