"""Translates the answers of a mail server, and connection failures, into transport errors."""

from __future__ import annotations

import re
import ssl
from typing import Final

import aiosmtplib

from .port import (
    AccountBlocked,
    OutgoingMessage,
    Refused,
    TransportError,
    TryLater,
    quoted,
)

CONNECT: Final = "SMTP_CONNECT"
LOST: Final = "SMTP_LOST"
TIMEOUT: Final = "SMTP_TIMEOUT"
NO_ANSWER: Final = "SMTP_NO_ANSWER"
BAD_ANSWER: Final = "SMTP_BAD_ANSWER"
BAD_ADDRESS: Final = "SMTP_BAD_ADDRESS"
TLS_FAILED: Final = "SMTP_TLS_FAILED"
TLS_UNTRUSTED: Final = "SMTP_TLS_UNTRUSTED"
NOT_OFFERED: Final = "SMTP_NOT_OFFERED"

# How servers report the id of a message, in the order in which the patterns are tried. The answer is one line then,
# without its codes. Where any word could follow, a word without a digit is part of a sentence and not an id.
_ID_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bqueued (?:on \S+ )?as (?P<id>\S+)",  # Postfix, SendGrid, Mailpit; with a host: Yandex
        r"\bqueued \((?P<id>[0-9A-F]{8}-[0-9A-F-]+(?:\.\d+)*)\)",  # Haraka
        r"\[InternalId=(?P<id>\d+)",  # Exchange, which repeats our Message-ID before it
        r"\bid(?:=| )(?P<id>(?=\S*\d)\S+)",  # Exim, Stalwart
        r"^ok\s+\d+ (?P<id>\S+) - gsmtp$",  # Gmail
        r"^ok (?P<id>\d+ qp \d+)$",  # qmail: the time and the number of the process
        r"^(?P<id>(?=\S*\d)\S+) message accepted for delivery",  # Sendmail, OpenSMTPD
        r"^ok[.:,]? (?P<id>(?=\S*\d)\S{6,})(?: \[|$)",  # Amazon SES, PowerMTA, Courier, Outlook
        r"^queued\. thank you\. (?P<id>\S+)$",  # Mailgun
    )
)
_ENHANCED_CODE: Final = re.compile(r"^[245]\.\d{1,3}\.\d{1,3}:?\s+")
_USABLE_ID: Final = re.compile(r"[ -~]{1,200}")

# The first digit of an answer.
_YES: Final = 2
_NOT_NOW: Final = 4
_NEVER: Final = 5
# 530: log in first, or use TLS first. 534, 535, 538: the login is not good enough.
_ACCOUNT: Final = frozenset({530, 534, 535, 538})


def positive(reply: aiosmtplib.SMTPResponse) -> bool:
    """Whether the server accepted (2xx)."""
    return reply.code // 100 == _YES


def transient(reply: aiosmtplib.SMTPResponse) -> bool:
    """Whether the server refused for now (4xx)."""
    return reply.code // 100 == _NOT_NOW


def negative(reply: aiosmtplib.SMTPResponse) -> bool:
    """Whether the server refused, for now or for good (4xx, 5xx)."""
    return reply.code // 100 in {_NOT_NOW, _NEVER}


def id_in(answer: str, outgoing: OutgoingMessage) -> str | None:
    """The id that a server gave to an accepted message; None if no pattern finds an id in the answer."""
    line = _ENHANCED_CODE.sub("", " ".join(answer.split()))
    for pattern in _ID_PATTERNS:
        found = pattern.search(line)
        name = found["id"].strip("<>.,;") if found else ""
        if _USABLE_ID.fullmatch(name) and not any(
            known in name for known in (outgoing.message_id[1:-1], *outgoing.recipients)
        ):
            return name
    return None


def refusal_of(reply: aiosmtplib.SMTPResponse, outgoing: OutgoingMessage) -> TransportError:
    """The transport error for an answer that is not an acceptance."""
    code, message = f"SMTP_{reply.code}", f"The server answered {reply.code}: {quoted(reply.message, outgoing)}"
    if reply.code in _ACCOUNT:
        return AccountBlocked(code, message)
    if transient(reply):
        return TryLater(code, message)
    if negative(reply):
        return Refused(code, message)
    return TryLater(BAD_ANSWER, f"The server answered {reply.code}, which is not a valid answer here.")


def connection_error(error: aiosmtplib.SMTPException | OSError) -> TransportError:
    """The transport error for a failed connection. A permanent refusal concerns the account, not a message."""
    match error:
        case aiosmtplib.SMTPResponseException(code=code, message=message):
            text = f"The server answered {code} to our greeting or login: {quoted(message)}"
            lasting = code // 100 == _NEVER
            return (AccountBlocked if lasting else TryLater)(f"SMTP_{code}" if code > 0 else BAD_ANSWER, text)
        case aiosmtplib.SMTPTimeoutError():
            return TryLater(TIMEOUT, "The server did not answer the connection in time.")
        case OSError():
            return _network_error(error if isinstance(error, ssl.SSLError) else error.__cause__)
        case _:
            # aiosmtplib raises this if the server does not offer STARTTLS, or no login method that we know.
            return AccountBlocked(
                NOT_OFFERED, "The server does not offer STARTTLS or a login, but the settings require it."
            )


def _network_error(cause: BaseException | None) -> TransportError:
    match cause:
        case ssl.SSLCertVerificationError():
            return AccountBlocked(TLS_UNTRUSTED, "The server's certificate cannot be trusted.")
        case ssl.SSLError():
            return TryLater(TLS_FAILED, "The TLS handshake with the server failed.")
        case _:
            return TryLater(CONNECT, "The server cannot be reached.")
