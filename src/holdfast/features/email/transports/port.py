"""The port between the email workload and the transports.

::

    TransportError
    ├── Refused           this message can never be sent; nothing was sent
    ├── TryLater          a later attempt may succeed; nothing was sent
    ├── AccountBlocked    no message can be sent until a person acts; nothing was sent
    └── OutcomeUnknown    the message may have been sent, or not (I11)

Before the point of no return, the other side cannot have accepted the message: a retry is safe, and the error is
``TryLater``. After that point, the error is ``OutcomeUnknown``. Codes are stable names. Error messages contain no clear
address (I14).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from holdfast import HoldfastError, scrub

ANSWER_TIMEOUT: Final = timedelta(seconds=15)
"""For each answer of a mail server. The answer to a whole message may take twice as long."""

_MAX_QUOTE: Final = 200
_MIN_LOCAL_PART: Final = 3
_RUN: Final = r"[^\s<>()\[\],;:\"'@]"
_ADDRESS: Final = re.compile(rf"(?<!{_RUN}){_RUN}*+@(?:{_RUN}|@)++")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message, ready to be sent. ``recipients`` is the whole envelope: first ``to``, last the bcc."""

    outbox_id: str
    raw: bytes = field(repr=False)
    message_id: str
    sender: str = field(repr=False)
    recipients: tuple[str, ...] = field(repr=False)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The other side accepted the message. ``message_id`` is the id of the other side, or ours if it gave none.

    ``refused`` are the recipients that the other side refused, never the first recipient.
    """

    message_id: str
    refused: tuple[str, ...] = field(default=(), repr=False)


class TransportError(HoldfastError):
    """The message was not sent, as far as is known."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refused(TransportError):
    """This message will never be sent."""


class TryLater(TransportError):
    """The message was not sent. It may be sent again ``after`` this time."""

    def __init__(self, code: str, message: str, after: timedelta | None = None) -> None:
        super().__init__(code, message)
        self.after = after


class AccountBlocked(TransportError):
    """No message can be sent until a person acts."""


class OutcomeUnknown(TransportError):
    """The message may have been sent, or not."""


class Transport(Protocol):
    """Sends mail. Safe to share between tasks of one event loop."""

    @property
    def name(self) -> str:
        """The name that configuration, logs and metrics use."""
        ...

    async def open(self) -> None:
        """Prepare the transport. It does not connect to the other side."""
        ...

    async def close(self) -> None:
        """Close every connection. Messages that are being sent are abandoned. Closing twice is harmless."""
        ...

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Send one message, once. Returns the answer of the other side.

        Raises a :class:`TransportError`. A cancelled call may have sent the message.
        """
        ...

    async def check(self) -> None:
        """Raise a :class:`TransportError` if sending would fail now. Sends nothing."""
        ...


def quoted(text: str, outgoing: OutgoingMessage | None = None) -> str:
    """The answer of the other side as one short line, without addresses.

    Servers often repeat the recipient, or only the part before the ``@``.
    """
    line = " ".join(text.split())
    for address in () if outgoing is None else (*outgoing.recipients, outgoing.sender):
        local_part = address.rpartition("@")[0]
        if len(local_part) >= _MIN_LOCAL_PART:
            line = re.sub(rf"(?<!\w){re.escape(local_part)}(?!\w)", "***", line, flags=re.IGNORECASE)
    return scrub(_ADDRESS.sub("***", line))[:_MAX_QUOTE]
