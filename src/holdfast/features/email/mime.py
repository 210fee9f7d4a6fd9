"""Builds the MIME message. The same job always gives the same bytes.

The reason: a message that is built again after a crash can be recognised as the same message.

The layout of a message is fixed, so its lines are written here. The generator of the email package writes the same
bytes, but it parses each header again several times: that took most of the time of a message.
"""

from __future__ import annotations

import re
from binascii import b2a_qp
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.header import Header
from email.headerregistry import HeaderRegistry
from email.utils import format_datetime
from functools import lru_cache
from hashlib import sha256
from itertools import count
from typing import Final, Self

from .contract import EmailSendJob
from .plain_text import text_of
from .texts import LINE_PATTERN, normalised

_DOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NAMED: Final = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>\s*")
_FIELD_NAME: Final = re.compile(r"[!-9;-~]+")
_LINE: Final = re.compile(LINE_PATTERN)
_LINE_LENGTH: Final = 78
_SENDERS: Final = 1024
"""How many senders are kept in their written form."""
_REGISTRY: Final = HeaderRegistry()
_PART_HEADERS: Final = b'Content-Type: text/%b; charset="utf-8"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n'
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
    boundary = _boundary(job.outboxId, text, html)

    headers = _Headers()
    headers.add("Message-ID", message_id)
    headers.add("Date", format_datetime(date))
    headers.add("From", _mailbox(sender))
    headers.add("To", job.to)
    if job.cc:
        headers.add("Cc", ", ".join(job.cc))
    if job.replyTo is not None:
        headers.add("Reply-To", job.replyTo)
    headers.add("Subject", job.subject)
    for name, value in (job.headers or {}).items():
        headers.add(name, value)
    headers.add("MIME-Version", "1.0")
    headers.add("Content-Type", f'multipart/alternative; boundary="{boundary}"')
    # Plain text first, HTML last: a mail program shows the last part that it can display.
    raw = b"%b\r\n--%b\r\n%b\r\n--%b\r\n%b\r\n--%b--\r\n" % (
        headers.written(),
        boundary.encode(),
        _part("plain", text),
        boundary.encode(),
        _part("html", html),
        boundary.encode(),
    )
    return BuiltMessage(
        raw=raw,
        message_id=message_id,
        envelope_from=normalised(sender.bounces or sender.address),
        recipients=tuple(dict.fromkeys((job.to, *(job.cc or ()), *(job.bcc or ())))),
    )


@lru_cache(maxsize=_SENDERS)
def _mailbox(sender: Sender) -> str:
    address = normalised(sender.address)
    if not sender.name:
        return address
    if _is_plain(sender.name):
        quoted = re.sub(r'(["\\])', r"\\\1", sender.name)
        return f'"{quoted}" <{address}>'
    return f"{_encoded(sender.name)} <{address}>"


def _part(subtype: str, text: str) -> bytes:
    # The text has no other line ends than \n, and the encoder writes a \r as =0D.
    content = b2a_qp(text.encode(), istext=True).replace(b"\n", b"\r\n")
    return _PART_HEADERS % subtype.encode() + content


def _boundary(outbox_id: str, *texts: str) -> str:
    """A boundary made from the outboxId, which no text contains."""
    candidates = (sha256(f"{outbox_id.lower()}/{number}".encode()).hexdigest()[:40] for number in count())
    return next(f"=_{each}" for each in candidates if not any(each in text for text in texts))


# --- headers --------------------------------------------------------------------------------------------------


class _Headers:
    """Writes each header exactly as given, or encodes all of it.

    The email package parses a header before it writes the header. It decodes encoded words in a subject, with the line
    breaks inside them, and it writes a long URL as an encoded word, which no mail program can open. Here a header is
    one line of text. A name or a value that could start another line is refused, for jobs of every producer. So is a
    second header of a kind that a message has only once.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: set[str] = set()

    def add(self, name: str, value: str) -> None:
        """Add a header. Raises ValueError for a header that a message cannot have."""
        if not _FIELD_NAME.fullmatch(name) or not _LINE.fullmatch(value):
            problem = "A header must be one line, with a name of visible ASCII characters."
            raise ValueError(problem)
        kind = name.lower()
        if kind in self._names and _only_once(kind):
            problem = f"A message has only one header {name}."
            raise ValueError(problem)
        self._names.add(kind)
        written = value if kind in _STRUCTURED or _is_plain(value) else _encoded(value)
        self._lines += _folded(f"{name}: {written}")

    def written(self) -> bytes:
        """The headers, each line with its end."""
        return "\r\n".join([*self._lines, ""]).encode("ascii")


def _only_once(kind: str) -> bool:
    """Whether a message may have one header of this kind only (RFC 5322)."""
    return getattr(_REGISTRY[kind], "max_count", None) == 1


def _is_plain(text: str) -> bool:
    # A mail program would decode a text that looks like an encoded word.
    return text.isascii() and "=?" not in text


def _encoded(text: str) -> str:
    """The text in encoded words (RFC 2047), separated by spaces. Decoding removes these spaces."""
    return Header(text, "utf-8", maxlinelen=70).encode(linesep="")


def _folded(header: str) -> Iterator[str]:
    """The header in several lines. Joined, they give the header: white space stays at the start of the next line."""
    if len(header) <= _LINE_LENGTH and not header[-1].isspace():
        yield header
        return
    line = ""
    for word in re.findall(r"^\S+|\s+\S+", header):
        if line and len(line) + len(word) > _LINE_LENGTH:
            yield line
            line = ""
        line += word
    yield line
