"""Failures between us and another server, by the names that a ledger entry shows; and the header ``Retry-After``.

The names are those of the operating system, as in Node and in rules C18 and C19. No client library is imported here, so
that code which only reads entries does not load one.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

TIMEOUT: Final = "TIMEOUT"
THROTTLED: Final = "THROTTLED"
REFUSED: Final = "ECONNREFUSED"
RESET: Final = "ECONNRESET"
UNKNOWN_HOST: Final = "ENOTFOUND"
TLS_FAILED: Final = "TLS_FAILED"
NETWORK: Final = "NETWORK"

LONGEST_RETRY_AFTER: Final = timedelta(hours=1)


_NETWORK_ERRORS: Final = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ESHUTDOWN,
        errno.ENOTCONN,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.EADDRNOTAVAIL,
    }
)
_PASSING_ANSWERS: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_ANSWERS_WITH_A_WAIT: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def network_code(error: Exception, *, broken_off: bool = False) -> str:
    """The usual name of a failed exchange. ``broken_off``: the other side had accepted the connection."""
    for cause in causes(error):
        code = system_code(cause)
        if code is not None:
            return code
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
            return errno.errorcode[cause.errno]
    return RESET if broken_off else NETWORK


def system_code(error: BaseException) -> str | None:
    """The name of a failure of the network that the system itself reports; None for any other error."""
    match error:
        case socket.gaierror():
            return UNKNOWN_HOST
        case TimeoutError():
            return TIMEOUT
        case ssl.SSLError():
            return TLS_FAILED
        case OSError(errno=int(number)) if number in _NETWORK_ERRORS:
            return errno.errorcode[number]
        case _:
            return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: clients wrap the errors of the libraries below them, and these wrap the system's."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            pending.extend(cause.exceptions)
        pending.append(cause.__cause__ or cause.__context__)


def answer_code(status: int) -> str:
    """The name of an HTTP answer that is an error."""
    return THROTTLED if status == HTTPStatus.TOO_MANY_REQUESTS else f"HTTP_{status}"


def answer_may_pass(status: int) -> bool:
    """Whether the same request may get another answer later."""
    return status in _PASSING_ANSWERS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def wait_asked_by(status: int) -> bool:
    """Whether a ``Retry-After`` header counts in an answer with this status."""
    return status in _ANSWERS_WITH_A_WAIT


def retry_after(header: str | None, now: datetime) -> timedelta | None:
    """The wait in a ``Retry-After`` header, at most an hour; None if the header cannot be read."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        wait = timedelta(seconds=int(text))
    else:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        # In mail, "-0000" means an unknown time zone; HTTP dates are always GMT.
        wait = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta(0)), LONGEST_RETRY_AFTER)
