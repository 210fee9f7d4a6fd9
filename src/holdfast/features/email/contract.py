"""The email contracts: the job of the queue ``email:send``, its result, and the dead letter.

Field names are those of the wire, as the specification writes them (E10, E50). No field may hold a clear tax number, a
card number or a token (I14). The errors name the field and the kind of data, never the value.
"""
# ruff: noqa: N815 - the attributes are the fields of the wire, and the wire is written in camelCase

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holdfast import HALF_A_CHARACTER, FieldProblem, find_personal_data, isoformat, sentence_of

from . import texts
from .texts import MAX_ADDRESS, normalised

QUEUE_NAME: Final = "email:send"
DEAD_LETTER_QUEUE_NAME: Final = "email:send:dlq"
"""For the default queue; see :func:`dead_letter_queue_of`."""
JOB_NAME: Final = "email:send"
"""The name of each job in BullMQ, for any name of the queue."""
DEFAULT_TTL: Final = 86_400_000
"""Milliseconds: 24 hours."""
DEFAULT_PRIORITY: Final = 5
MAX_ATTEMPTS: Final = 5
BACKOFF_DELAYS: Final = (1, 5, 30, 120, 600)
"""Seconds."""
DLQ_TTL: Final = 604_800_000
"""Milliseconds: 7 days."""

MAX_COPIES: Final = 5
MAX_TAGS: Final = 5
MAX_SUBJECT: Final = 150
MAX_REQUEST_ID: Final = 128
MAX_ERROR_CODE: Final = 64
MAX_ERROR_REASON: Final = 500
MAX_HEADERS: Final = 20
MAX_HEADER_NAME: Final = 76
MAX_HEADER_LINE: Final = 998
"""RFC 5322: a line, without its end."""

# The types of our own validation errors.
PERSONAL_DATA: Final = "personal_data"
BAD_ADDRESS: Final = "address"
BAD_HEADER: Final = "header"

# RFC 3339 with an offset. Only years that a 24-character instant and every store can hold.
_INSTANT = re.compile(
    r"(?:19[7-9][0-9]|2[0-9]{3})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
)

# Headers that we set ourselves, or that control the provider, are not allowed.
_HEADERS_ALLOWED: Final = re.compile(
    r"(?i)X-(?!Amz|SES-)[!-9;-~]+|List-Unsubscribe|List-Unsubscribe-Post|List-ID|Auto-Submitted|Precedence|In-Reply-To"
    r"|References|Importance|Priority|Feedback-ID|Entity-Ref-ID",
)
_MOST_PROBLEMS: Final = 50
_FIELD_NAME: Final = re.compile(rf"[!-9;-~]{{1,{MAX_HEADER_NAME}}}")
_SAFE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_NAME_TO_SHOW: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
_LINE: Final = re.compile(texts.LINE_PATTERN)


def dead_letter_queue_of(queue: str) -> str:
    """``email:send:dlq`` for ``email:send``. A name without ``:`` gets ``-dlq``, because BullMQ refuses ``:``."""
    return f"{queue}:dlq" if ":" in queue else f"{queue}-dlq"


def header_problems(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The problems of custom headers: the name, or ``*`` if the name must not be shown, and one sentence."""
    seen: set[str] = set()
    for name, value in headers.items():
        shown = name if _NAME_TO_SHOW.fullmatch(name) and find_personal_data(name) is None else "*"
        problem = _name_problem(name) or _value_problem(name, value)
        if problem is None and name.lower() in seen:
            problem = "is given twice"
        seen.add(name.lower())
        if problem is not None:
            yield shown, problem


def _name_problem(name: str) -> str | None:
    if not _FIELD_NAME.fullmatch(name):
        return f"must have a name of 1 to {MAX_HEADER_NAME} visible ASCII characters without a colon"
    if not _HEADERS_ALLOWED.fullmatch(name):
        return "is not a header that may be set; names of your own begin with X-"
    found = find_personal_data(name)
    return None if found is None else f"holds a {found.value}"


def _value_problem(name: str, value: str) -> str | None:
    if not texts.is_whole(value):
        return HALF_A_CHARACTER
    if not value.strip():
        return "must not be blank"
    if len(name) + len(": ") + len(value) > MAX_HEADER_LINE:
        return f"must not be longer than {MAX_HEADER_LINE} characters, with its name"
    # `$` would let a line feed pass at the end.
    if not _LINE.fullmatch(value):
        return "must not contain line breaks or control characters"
    if value != value.strip():
        return "must not begin or end with white space"
    found = find_personal_data(value)
    return None if found is None else f"holds a {found.value}"


def read_instant(value: object) -> datetime | None:
    """The instant, cut to the millisecond, because the wire and the stores keep no more; None if it is invalid."""
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:  # the 31st of February
            return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    value = value.astimezone(UTC)
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _instant(value: object) -> datetime:
    instant = read_instant(value)
    if instant is None:
        kind, sentence = "instant", "must be an ISO-8601 instant with a time zone, such as 2026-02-26T12:00:00Z"
        raise PydanticCustomError(kind, sentence)
    return instant


def _without_personal_data(text: str) -> str:
    found = find_personal_data(text)
    if found is not None:
        raise PydanticCustomError(PERSONAL_DATA, "holds a {kind}", {"kind": found.value})
    return text


def _address(text: str) -> str:
    try:
        return normalised(text)
    except ValueError as error:
        raise PydanticCustomError(BAD_ADDRESS, "{problem}", {"problem": str(error)}) from None


def _headers(headers: dict[str, str]) -> dict[str, str]:
    """Raise for the first problem only: pydantic has one error per value. :mod:`.request` reports all of them."""
    for name, problem in header_problems(headers):
        raise PydanticCustomError(BAD_HEADER, "{name} {problem}", {"name": name, "problem": problem})
    return headers


Clean = AfterValidator(_without_personal_data)
"""No clear tax number, card number or token."""

Uuid = Annotated[str, texts.UUID, AfterValidator(str.lower)]
"""Stored in lower case: two spellings of one id are one email."""
DocumentHash = Annotated[str, texts.DOCUMENT_HASH]
Address = Annotated[
    str,
    StringConstraints(max_length=MAX_ADDRESS),
    AfterValidator(_address),
    Clean,
    Field(json_schema_extra={"format": "email"}),
]
"""A valid address, in the form in which addresses are compared and sent."""
Copies = Annotated[tuple[Address, ...], Field(max_length=MAX_COPIES)]
Subject = Annotated[str, texts.line(MAX_SUBJECT), Clean]
HtmlRef = Annotated[str, texts.words(512), Clean]
RequestId = Annotated[str, texts.identifier(MAX_REQUEST_ID), Clean]
ExternalId = Annotated[str, texts.words(64), Clean]
RazaoSocial = Annotated[str, texts.words(150), Clean]
Nome = Annotated[str, texts.words(120), Clean]
Tag = Annotated[str, texts.words(50), Clean]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)]
Headers = Annotated[dict[str, str], Field(max_length=MAX_HEADERS), AfterValidator(_headers)]
Instant = Annotated[
    datetime,
    PlainValidator(_instant),
    PlainSerializer(isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def _absent(value: object) -> bool:
    return value is None


class _Closed(BaseModel):
    """An object with known fields only. Absent fields are not written, as in a TypeScript producer."""

    # The input contains addresses. An error that is printed by accident must not show them.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class EmailRecipient(_Closed):
    """The recipient of an email. At least one of the three identifiers is required (E24)."""

    recipientId: Annotated[Uuid | None, Field(exclude_if=_absent)] = None
    externalId: Annotated[ExternalId | None, Field(exclude_if=_absent)] = None
    cpfCnpjHash: Annotated[DocumentHash | None, Field(exclude_if=_absent)] = None
    razaoSocial: Annotated[RazaoSocial | None, Field(exclude_if=_absent)] = None
    nome: Annotated[Nome | None, Field(exclude_if=_absent)] = None
    email: Address

    @model_validator(mode="after")
    def _has_an_identifier(self) -> Self:
        if self.recipientId is None and self.externalId is None and self.cpfCnpjHash is None:
            kind, sentence = "no_identifier", "needs at least one of recipientId, externalId and cpfCnpjHash"
            raise PydanticCustomError(kind, sentence)
        return self


_JOB_EXAMPLE: Final[dict[str, Any]] = {
    "outboxId": "123e4567-e89b-12d3-a456-426614174000",
    "companyId": "789e4567-e89b-12d3-a456-426614174999",
    "requestId": "req-abc123",
    "to": "cliente@example.com",
    "subject": "Seu boleto está disponível",
    "htmlRef": "123e4567-e89b-12d3-a456-426614174000",
    "recipient": {
        "externalId": "CUST-12345",
        "cpfCnpjHash": "a3c7b8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b",
        "nome": "João da Silva",
        "email": "cliente@example.com",
    },
    "attempt": 1,
    "enqueuedAt": "2025-10-19T12:00:00.000Z",
}


class EmailSendJob(_Closed):
    """One job of ``email:send``: EmailSendJobData (E10). It refers to its HTML and never contains it (E4)."""

    model_config = ConfigDict(json_schema_extra={"examples": [_JOB_EXAMPLE]})

    outboxId: Annotated[Uuid, Field(description="The record in email_outbox, and the id of the job.")]
    companyId: Annotated[Uuid, Field(description="The tenant.")]
    requestId: RequestId
    to: Address
    cc: Annotated[Copies | None, Field(exclude_if=_absent)] = None
    bcc: Annotated[Copies | None, Field(exclude_if=_absent)] = None
    subject: Subject
    htmlRef: HtmlRef
    replyTo: Annotated[Address | None, Field(exclude_if=_absent)] = None
    headers: Annotated[Headers | None, Field(exclude_if=_absent)] = None
    tags: Annotated[Tags | None, Field(exclude_if=_absent)] = None
    recipient: EmailRecipient
    attempt: Annotated[int, Field(strict=True, ge=1, le=MAX_ATTEMPTS)]
    enqueuedAt: Instant

    @model_validator(mode="after")
    def _is_for_its_recipient(self) -> Self:
        if self.recipient.email != self.to:
            kind, sentence = "recipient_mismatch", "recipient.email must be the same address as to"
            raise PydanticCustomError(kind, sentence)
        return self


class EmailSendResult(_Closed):
    """The result of a job (E50)."""

    sesMessageId: Annotated[str, StringConstraints(min_length=1)]
    status: Literal["SENT", "ALREADY_SENT"]
    processedAt: Instant
    durationMs: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]


class EmailAttempt(_Closed):
    """One failed attempt, as the dead-letter queue shows it."""

    attempt: Annotated[int, Field(ge=1)]
    outcome: Literal["failed", "lost"]
    errorCode: Annotated[str, StringConstraints(min_length=1)]
    errorMessage: Annotated[str | None, Field(exclude_if=_absent)] = None
    startedAt: Instant
    finishedAt: Annotated[Instant | None, Field(exclude_if=_absent)] = None


class EmailDeadLetter(_Closed):
    """One job of ``email:send:dlq``: the email, the reason of the failure, and the attempts.

    ``payload`` is the masked job. The identifiers may be any text, and ``enqueuedAt`` may be absent: a job that broke
    the contract gets a dead letter too.
    """

    jobId: Annotated[str, StringConstraints(min_length=1)]
    outboxId: Annotated[str, StringConstraints(min_length=1)]
    companyId: Annotated[str, StringConstraints(min_length=1)]
    payload: Any
    failedAttempts: Annotated[int, Field(ge=0)]
    lastFailureReason: Annotated[str, StringConstraints(min_length=1)]
    lastFailureCode: Annotated[str, StringConstraints(min_length=1)]
    failedAt: Instant
    enqueuedAt: Annotated[Instant | None, Field(exclude_if=_absent)] = None
    attemptHistory: tuple[EmailAttempt, ...]

    @model_validator(mode="after")
    def _counts_its_attempts(self) -> Self:
        if [each.attempt for each in self.attemptHistory] != list(range(1, self.failedAttempts + 1)):
            kind = "attempt_count"
            sentence = "attemptHistory must hold the attempts 1 to failedAttempts, each once, in order"
            raise PydanticCustomError(kind, sentence)
        return self


# --- problems of an email that breaks the contract --------------------------------------------------------------


def problems_of(error: ValidationError, whole: str) -> list[FieldProblem]:
    """The fields, each with one sentence for the sender, without the value (I14).

    The order is that in which pydantic found them. ``whole`` is the name of the object with the fields.
    """
    found = error.errors(include_url=False, include_input=False)
    return [_problem(each, whole) for each in found[:_MOST_PROBLEMS]]


def _problem(error: Mapping[str, Any], whole: str) -> FieldProblem:
    if error["type"] == "model_type" and not error["loc"]:
        return FieldProblem(whole, "must be a JSON object")
    sentence = "is not a field of an email" if error["type"] == "extra_forbidden" else sentence_of(error)
    return FieldProblem(_path(error["loc"]) or whole, sentence)


def _path(parts: tuple[str | int, ...]) -> str:
    """The field, as ``cc.0``. A part that does not look like a name may be a value: it is shown as ``*``."""
    return ".".join(str(part) if isinstance(part, int) or _is_a_name(part) else "*" for part in parts)


def _is_a_name(part: str) -> bool:
    return _SAFE_NAME.fullmatch(part) is not None and find_personal_data(part) is None
