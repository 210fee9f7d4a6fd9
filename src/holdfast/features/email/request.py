"""The body of ``POST /v1/email/send``: a valid request to send one email, or a list of all its problems."""
# ruff: noqa: N815 - the attributes of the body are the fields of the wire, which are camelCase

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from holdfast import HALF_A_CHARACTER, FieldProblem, InvalidContent, Kind, duration_ms, normalise_document

from . import contract
from .texts import is_whole, normalised
from .vault import Vault

MAX_PROBLEMS: Final = 50
DOCUMENT_PURPOSE: Final = "cpfCnpj"
"""The purpose of the fingerprint of a tax number. The same number has the same hash in every job."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits for requests. ``ttl`` is the longest delay, and how far in the future ``sendAt`` may be."""

    html_bytes: int = 512 * 1024
    ttl: timedelta = timedelta(milliseconds=contract.DEFAULT_TTL)


# --- the body, for validation and for the published schema ----------------------------------------------------


def _tax_number(text: str) -> str:
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

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """No values: a body is full of personal data."""
        yield from ()


class RecipientBody(_Body):
    """The recipient, as the tenant sends it. A clear CPF or CNPJ is allowed in ``cpfCnpj`` only."""

    recipientId: Annotated[contract.Uuid | None, Field(description="The id of a recipient of an earlier email.")] = None
    externalId: contract.ExternalId | None = None
    cpfCnpj: Annotated[str, StringConstraints(max_length=32), AfterValidator(_tax_number)] | None = None
    cpfCnpjHash: contract.DocumentHash | None = None
    razaoSocial: contract.RazaoSocial | None = None
    nome: contract.Nome | None = None
    email: Annotated[contract.Address | None, Field(description="Must be the same address as `to`. Default: `to`.")] = (
        None
    )

    @property
    def document(self) -> str | None:
        """The digits of the CPF or CNPJ, in clear."""
        return None if self.cpfCnpj is None else normalise_document(self.cpfCnpj)[1]

    def document_hash(self, vault: Vault) -> str | None:
        """The ``cpfCnpjHash`` of the job: the given hash, or the fingerprint of the clear number."""
        return self.cpfCnpjHash if self.document is None else vault.fingerprint(self.document, DOCUMENT_PURPOSE)


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

    def wait(self, now: datetime) -> timedelta:
        """The time from now until the email may be sent."""
        if self.sendAt is not None:
            return max(self.sendAt - now, timedelta(0))
        return timedelta(milliseconds=self.delay or 0)

    def content_hash(self, vault: Vault) -> str:
        """64 hexadecimal characters, equal for two requests that would send the same email to the same person.

        The time of sending and the priority do not count. The hash uses a key. Without a key, somebody who knows the
        text but not the CPF in it could find the CPF by trying all of them.
        """
        person = self.recipient
        content = {
            "to": self.to,
            "cc": self.cc or (),
            "bcc": self.bcc or (),
            "subject": self.subject,
            "html": None if self.html is None else sha256(self.html.encode()).hexdigest(),
            "htmlRef": self.htmlRef,
            "replyTo": self.replyTo,
            "headers": sorted((name.lower(), value) for name, value in (self.headers or {}).items()),
            "tags": self.tags or (),
            "externalId": person.externalId,
            "cpfCnpjHash": person.document_hash(vault),
            "razaoSocial": person.razaoSocial,
            "nome": person.nome,
        }
        if person.recipientId is not None:  # otherwise left out, so that the hash is the same as in older versions
            content["recipientId"] = person.recipientId
        return vault.fingerprint(json.dumps(content, sort_keys=True), "content")


# --- the request ----------------------------------------------------------------------------------------------


def admit_request(raw_body: object, *, limits: RequestLimits, now: datetime) -> EmailSendBody:
    """The valid request in this body. Raises :class:`InvalidContent` with every problem, at most fifty.

    A problem has the field and one sentence. It never repeats a value of the body (I14).
    """
    problems: list[FieldProblem] = []
    body: EmailSendBody | None = None
    try:
        body = EmailSendBody.model_validate(raw_body)
    except ValidationError as error:
        problems = [
            FieldProblem(each.field, _with_advice(each.problem)) for each in contract.problems_of(error, "body")
        ]
    if isinstance(raw_body, Mapping):
        problems += _problems_between(raw_body, limits, now)
    if problems or body is None:
        # One problem for each field and cause, in the order in which they were found.
        raise InvalidContent(tuple(dict.fromkeys(problems))[:MAX_PROBLEMS])
    return body


# --- problems between fields: checked in the raw body, so that a wrong field hides none of them ---------------


def _problems_between(body: Mapping[Any, Any], limits: RequestLimits, now: datetime) -> Iterator[FieldProblem]:
    yield from _content_problems(body, limits)
    yield from _header_problems(body.get("headers"))
    yield from _repeated_addresses(body)
    yield from _recipient_problems(body)
    yield from _time_problems(body, limits, now)


def _content_problems(body: Mapping[Any, Any], limits: RequestLimits) -> Iterator[FieldProblem]:
    html, ref = body.get("html"), body.get("htmlRef")
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


def _repeated_addresses(body: Mapping[Any, Any]) -> Iterator[FieldProblem]:
    seen: set[str] = set()
    for path, address in _addresses(body):
        if address in seen:
            yield FieldProblem(path, "is given twice in to, cc and bcc")
        seen.add(address)


def _addresses(body: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """The valid addresses of the email with their fields, in the form in which addresses are compared."""
    given: list[tuple[str, object]] = [("to", body.get("to"))]
    for name in ("cc", "bcc"):
        copies = body.get(name)
        if isinstance(copies, list):
            # Too many copies are a problem already, so the rest is not checked.
            given += [(f"{name}.{position}", each) for position, each in enumerate(copies[: contract.MAX_COPIES])]
    for path, value in given:
        comparable = _comparable(value)
        if comparable is not None:
            yield path, comparable


def _recipient_problems(body: Mapping[Any, Any]) -> Iterator[FieldProblem]:
    recipient = body.get("recipient")
    if not isinstance(recipient, Mapping):
        return
    given = {name for name, value in recipient.items() if value is not None}
    if not given & {"recipientId", "externalId", "cpfCnpj", "cpfCnpjHash"}:
        yield FieldProblem("recipient", "needs at least one of recipientId, externalId, cpfCnpj and cpfCnpjHash")
    if {"cpfCnpj", "cpfCnpjHash"} <= given:
        yield FieldProblem("recipient.cpfCnpjHash", "must not be given together with cpfCnpj")
    to, email = _comparable(body.get("to")), _comparable(recipient.get("email"))
    if to is not None and email is not None and to != email:
        yield FieldProblem("recipient.email", "must be the same address as to")


def _time_problems(body: Mapping[Any, Any], limits: RequestLimits, now: datetime) -> Iterator[FieldProblem]:
    delay, send_at = body.get("delay"), body.get("sendAt")
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
    elif instant > now + limits.ttl:
        yield FieldProblem("sendAt", f"must not be more than {_hours(limits.ttl)} hours ahead")


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):g}"


def _comparable(value: object) -> str | None:
    try:
        return normalised(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _with_advice(problem: str) -> str:
    """Add where a tax number belongs."""
    if problem in {f"holds a {Kind.CPF}", f"holds a {Kind.CNPJ}"}:
        return f"{problem}: put it into recipient.cpfCnpj"
    return problem
