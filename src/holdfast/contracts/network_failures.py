"""What can go wrong between us and another server, by the names that a ledger entry shows; and the wait it asks for.

Node and the seeds use those of the operating system, and so do we. No client is imported here: whoever only reads
entries need not load one.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

TIMEOUT: Final = "TIMEOUT"
THROTTLED: Final = "THROTTLED"
REFUSED: Final = "ECONNREFUSED"
RESET: Final = "ECONNRESET"
UNKNOWN_HOST: Final = "ENOTFOUND"
TLS_FAILED: Final = "TLS_FAILED"
NETWORK: Final = "NETWORK"

LONGEST_RETRY_AFTER: Final = timedelta(hours=1)


def network_code(error: Exception, *, broken_off: bool) -> str:
    """The name that people know a failed exchange by. ``broken_off``: the other side had taken the connection."""
    for cause in _causes(error):
        match cause:
            case socket.gaierror():
                return UNKNOWN_HOST
            case ssl.SSLError():
                return TLS_FAILED
            case OSError(errno=int(number)) if number in errno.errorcode:
                return errno.errorcode[number]
    return RESET if broken_off else NETWORK


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came from: clients wrap the libraries below them, which wrap the system's own."""
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is None:
            continue
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            pending.extend(cause.exceptions)
        pending.append(cause.__cause__ or cause.__context__)


def retry_after(header: str | None, now: datetime) -> timedelta | None:
    """The wait that a ``Retry-After`` header asks for, at most an hour; None when it says nothing readable."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        asked = timedelta(seconds=int(text))
    else:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        # "-0000" is how mail says that the zone is unknown; HTTP dates are always GMT.
        asked = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - now
    return min(max(asked, timedelta(0)), LONGEST_RETRY_AFTER)
