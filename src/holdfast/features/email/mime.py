"""Builds the MIME message with the standard library. The same job always gives the same bytes.

The reason: a message that is built again after a crash can be recognised as the same message.
"""

from __future__ import annotations

import re
from binascii import b2a_qp
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from hashlib import sha256
from itertools import count
from typing import Any, Final, Self

from .contract import EmailSendJob
from .plain_text import text_of
from .texts import LINE_PATTERN, normalised

_DOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NAMED: Final = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>\s*")
_FIELD_NAME: Final = re.compile(r"[!-9;-~]+")
_LINE: Final = re.compile(LINE_PATTERN)
_LINE_LENGTH: Final = 78
# Headers that we write ourselves, in ASCII. Only names may need encoded words.
_STRUCTURED: Final = frozenset(
    {
        "cc",
        "content-transfer-encoding",
        "content-type",
        "date",
        "from",
        "message-id",
        "mime-version",
        "reply-to",
        "to",
    }
)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender: an address, a display name, and the address for bounces (by default the same address).

    Raises ValueError for an invalid address, and for a name with control characters.
    """

    address: str
    name: str = ""
    bounces: str | None = None

    def __post_init__(self) -> None:
        normalised(self.address)
        normalised(self.bounces or self.address)
        if self.name and not _LINE.fullmatch(self.name):
            message = "The sender's name must not contain line breaks or control characters."
            raise ValueError(message)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The sender in ``Loja do João <loja@example.com>`` or ``loja@example.com``."""
        named = _NAMED.fullmatch(text)
        if named is None:
            return cls(text.strip())
        return cls(named["address"], name=named["name"].strip().strip('"'))


@dataclass(frozen=True, slots=True, repr=False)
class BuiltMessage:
    """One message, ready for a transport. ``recipients`` is the whole envelope, with blind copies."""

    raw: bytes
    message_id: str
    envelope_from: str
    recipients: tuple[str, ...]


def build_message(job: EmailSendJob, html: str, *, sender: Sender, domain: str, date: datetime) -> BuiltMessage:
    """The message of this job: plain text and HTML, in ASCII lines of fewer than 998 characters.

    Its Message-ID and boundary come from the outboxId. Blind copies are in the envelope only. The name of the
    recipient is not in the message: the address is enough to deliver it.
    """
    if not _DOMAIN.fullmatch(domain):
        problem = "The domain of the Message-ID must be a host name in lower case."
        raise ValueError(problem)
    html = html.replace("\r\n", "\n").replace("\r", "\n")
    text = text_of(html)
    message_id = f"<{job.outboxId.lower()}@{domain}>"

    message = EmailMessage(policy=_WIRE)
    message["Message-ID"] = message_id
    message["Date"] = format_datetime(date)
    message["From"] = _mailbox(sender)
    message["To"] = job.to
    if job.cc:
        message["Cc"] = ", ".join(job.cc)
    if job.replyTo is not None:
        message["Reply-To"] = job.replyTo
    message["Subject"] = job.subject
    for name, value in (job.headers or {}).items():
        message[name] = value
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = f'multipart/alternative; boundary="{_boundary(job.outboxId, text, html)}"'
    # Plain text first, HTML last: a mail program shows the last part that it can display.
    message.attach(_part("plain", text))
    message.attach(_part("html", html))
    return BuiltMessage(
        raw=message.as_bytes(),
        message_id=message_id,
        envelope_from=normalised(sender.bounces or sender.address),
        recipients=tuple(dict.fromkeys((job.to, *(job.cc or ()), *(job.bcc or ())))),
    )


def _mailbox(sender: Sender) -> str:
    address = normalised(sender.address)
    if not sender.name:
        return address
    if _is_plain(sender.name):
        quoted = re.sub(r'(["\\])', r"\\\1", sender.name)
        return f'"{quoted}" <{address}>'
    return f"{_encoded(sender.name)} <{address}>"


def _part(subtype: str, text: str) -> EmailMessage:
    part = EmailMessage(policy=_WIRE)
    part["Content-Type"] = f'text/{subtype}; charset="utf-8"'
    part["Content-Transfer-Encoding"] = "quoted-printable"
    # The encoder of the email package is written in Python, and slow for half a megabyte.
    part.set_payload(b2a_qp(text.encode(), istext=True).decode("ascii"))
    return part


def _boundary(outbox_id: str, *texts: str) -> str:
    """A boundary made from the outboxId, which no text contains."""
    candidates = (sha256(f"{outbox_id.lower()}/{number}".encode()).hexdigest()[:40] for number in count())
    return next(f"=_{each}" for each in candidates if not any(each in text for text in texts))


# --- headers --------------------------------------------------------------------------------------------------


class _WirePolicy(EmailPolicy):
    """Writes each header exactly as given, or encodes all of it.

    The email package parses a header before it writes the header. It decodes encoded words in a subject, with the line
    breaks inside them, and it writes a long URL as an encoded word, which no mail program can open. Here a header is
    one line of text. A name or a value that could start another line is refused, for jobs of every producer.
    """

    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - the package's signature
        if not _FIELD_NAME.fullmatch(name) or not _LINE.fullmatch(value):
            problem = "A header must be one line, with a name of visible ASCII characters."
            raise ValueError(problem)
        return name, value

    def fold(self, name: str, value: str) -> str:
        written = value if name.lower() in _STRUCTURED or _is_plain(value) else _encoded(value)
        return "\r\n".join(_folded(f"{name}: {written}")) + "\r\n"

    def fold_binary(self, name: str, value: str) -> bytes:
        return self.fold(name, value).encode("ascii")


_WIRE: Final = _WirePolicy(linesep="\r\n", cte_type="7bit", max_line_length=_LINE_LENGTH)


def _is_plain(text: str) -> bool:
    # A mail program would decode a text that looks like an encoded word.
    return text.isascii() and "=?" not in text


def _encoded(text: str) -> str:
    """The text in encoded words (RFC 2047), separated by spaces. Decoding removes these spaces."""
    return Header(text, "utf-8", maxlinelen=70).encode(linesep="")


def _folded(header: str) -> Iterator[str]:
    """The header in several lines. Joined, they give the header: white space stays at the start of the next line."""
    line = ""
    for word in re.findall(r"^\S+|\s+\S+", header):
        if line and len(line) + len(word) > _LINE_LENGTH:
            yield line
            line = ""
        line += word
    yield line
