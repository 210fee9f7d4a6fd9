"""Masks jobs for people: in dead letters, in the console, on the command line (I14).

An external producer may put any content into the queue, so nothing here relies on its shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast import Job, find_personal_data, scrub

from .contract import EmailSendJob
from .records import shown_hash
from .texts import mask_address

HIDDEN: Final = "***"
MAX_DEPTH: Final = 32

_MAX_TEXT: Final = 2000
_CPF_DIGITS: Final = 11
_MIN_DIGITS: Final = 9
"""A number with fewer digits is a count or a duration, although 191 could be the CPF 000.000.001-91."""

# Field names are compared in lower case, without punctuation.
_SECRETS: Final = frozenset(
    {"apikey", "authorization", "cnpj", "cpf", "cpfcnpj", "documento", "html", "password", "secret", "senha", "token"}
)
_NAMES: Final = frozenset({"fullname", "name", "nome", "nomefantasia", "razaosocial"})
_HASHES: Final = frozenset({"cpfcnpjhash"})
_IDENTIFIERS: Final = frozenset(
    {"companyid", "externalid", "htmlref", "id", "jobid", "outboxid", "recipientid", "requestid"}
)

_HEX: Final = re.compile(r"[0-9A-Fa-f]{16,}")

# Any text around an @ counts as an address: an invalid address is personal data too. A match starts only at the
# beginning of such a text, never inside it. This keeps the search linear.
_RUN: Final = r"[^\s@<>()\[\],;:\"]"
_ADDRESS: Final = re.compile(rf"(?:\"[^\"]*+\"|(?<!{_RUN}){_RUN}++)@(?:{_RUN}|@)*+")

# JSON inside a string, also if it is cut off or malformed.
_MEMBER: Final = re.compile(
    r'(?i)(\\?"(?:cpf|cnpj|cpfcnpj|nome|razaosocial|html|senha|password)\\?"\s*:\s*\\?")[^"\\]*'
)


def masked_job(body: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The job without personal data. The identifiers of the job stay; data that identifies a person is masked.

    Addresses become ``u***@e***.com`` in every field. Names keep their first letter, a ``cpfCnpjHash`` its first eight
    characters. HTML and clear tax numbers are left out. Long texts are cut. Values deeper than 32 levels are not shown.
    It never raises for JSON.
    """
    return _masked(body, "", 1)


def log_facts(job: Job[EmailSendJob]) -> dict[str, Any]:
    """The log fields of an attempt: those of rule E43, and the number of the attempt."""
    recipient = job.data.recipient
    shown = {"email": mask_address(recipient.email)}
    if recipient.cpfCnpjHash is not None:
        shown["cpfCnpjHash"] = shown_hash(recipient.cpfCnpjHash)
    return {
        "jobId": job.job_id,
        "outboxId": job.data.outboxId,
        "attempt": job.attempt,
        "to": mask_address(job.data.to),
        "recipient": shown,
    }


def masked_text(text: str) -> str:
    """Free text without addresses, tax numbers, card numbers and credentials, cut to a bounded length."""
    text = _ADDRESS.sub(_masked_address, _cut(text))
    text = scrub(_MEMBER.sub(rf"\1{HIDDEN}", text))
    # Find what scrub does not find: other ways to write a number, other tokens.
    kind = find_personal_data(text)
    return text if kind is None else f"***{kind.name}***"


def without_names(text: str, *names: str | None) -> str:
    """A text of another program about an email, without the names of its recipient.

    No pattern can find a name. But if a mail server repeats a name, the name comes from our email, so we know it.
    """
    for name in names:
        if name and name.strip():
            text = re.sub(re.escape(name.strip()), _initial(name), text, flags=re.IGNORECASE)
    return text


def _masked(value: Any, field: str, depth: int) -> Any:  # noqa: ANN401, PLR0911 - any JSON value, a line for each kind
    match value:
        case None | bool():
            return value
        case _ if field in _SECRETS or depth > MAX_DEPTH:
            return HIDDEN
        case str():
            return _masked_string(value, field)
        case int() | float():
            return _masked_number(value)
        case Mapping():
            return {_shown_key(key): _masked(each, _plain(key), depth + 1) for key, each in value.items()}
        case list() | tuple():
            return [_masked(each, field, depth + 1) for each in value]
        case _:
            return HIDDEN


def _masked_string(text: str, field: str) -> str:
    if field in _NAMES:
        return _initial(text)
    if field in _HASHES:
        return shown_hash(text) if _HEX.fullmatch(text) else HIDDEN
    if field in _IDENTIFIERS and "@" not in text and text.isprintable() and len(text) <= _MAX_TEXT:
        # scrub would take any eleven digits for a CPF; an identifier is hidden only when it really holds one.
        kind = find_personal_data(text)
        return text if kind is None else f"***{kind.name}***"
    return masked_text(text)


def _initial(name: str) -> str:
    initial = name.lstrip()[:1]
    return f"{initial if initial.isalpha() else ''}{HIDDEN}"


def _masked_address(found: re.Match[str]) -> str:
    address = found[0].rstrip(".!?'}")  # the end of a sentence is not part of the address
    return mask_address(address) + found[0][len(address) :]


def _masked_number(number: float) -> int | float | str:
    # Python refuses to print integers with thousands of digits.
    if isinstance(number, int) and number.bit_length() > 64:  # noqa: PLR2004 - the largest that stores keep
        return HIDDEN
    digits = str(number).removesuffix(".0").lstrip("-")
    if len(digits) >= _MIN_DIGITS:
        digits = digits.zfill(_CPF_DIGITS)  # a number has lost its leading zeros
    kind = find_personal_data(digits)
    return number if kind is None else f"***{kind.name}***"


def _shown_key(key: object) -> str:
    text = key if isinstance(key, str) else HIDDEN
    return masked_text(text)


def _plain(key: object) -> str:
    return re.sub(r"[^a-z0-9]", "", key[:64].lower()) if isinstance(key, str) else ""


def _cut(text: str) -> str:
    """The beginning of a long text. It is cut at a space, so that no half of an address or number remains."""
    if len(text) <= _MAX_TEXT:
        return text
    head, _, _ = text[:_MAX_TEXT].rpartition(" ")
    return f"{head} …" if head else HIDDEN
