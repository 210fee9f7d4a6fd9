"""The port between the email workload and whatever carries mail away.

::

    TransportError
    ├── Refused           this message will never go; nothing was sent
    ├── TryLater          it may go another time; nothing was sent
    ├── AccountBlocked    nothing can go until a person acts; nothing was sent, and it is not this message's fault
    └── OutcomeUnknown    it may have been sent, or not (I11)

The side of the point of no return decides between ``TryLater`` and ``OutcomeUnknown``: as long as the other side cannot
have taken the message, trying again is safe. Codes are stable names; messages hold no address in clear (I14).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from holdfast.contracts.errors import HoldfastError
from holdfast.contracts.redaction import scrub

_LONGEST_QUOTE: Final = 200
_SHORTEST_LOCAL_PART: Final = 3
_ADDRESS: Final = re.compile(r"[^\s<>()\[\],;:\"']*@[^\s<>()\[\],;:\"']+")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message, ready to go. ``recipients`` is the whole envelope, with the ``to`` first and the bcc at the end."""

    outbox_id: str
    raw: bytes = field(repr=False)
    message_id: str
    sender: str = field(repr=False)
    recipients: tuple[str, ...] = field(repr=False)
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The other side took the message. ``message_id`` is the name that it gave, or ours where it gave none.

    ``refused`` are the recipients that it does not take it for, never the first one.
    """

    message_id: str
    refused: tuple[str, ...] = field(default=(), repr=False)


class TransportError(HoldfastError):
    """The message was not sent as far as we know."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refused(TransportError):
    """This message will never be sent."""


class TryLater(TransportError):
    """The message was not sent. It may go ``after`` a while."""

    def __init__(self, code: str, message: str, after: timedelta | None = None) -> None:
        super().__init__(code, message)
        self.after = after


class AccountBlocked(TransportError):
    """No message can be sent until a person acts."""


class OutcomeUnknown(TransportError):
    """The message may have been sent, or not."""


class Transport(Protocol):
    """What carries mail away. Safe to share between tasks of one event loop."""

    @property
    def name(self) -> str:
        """The name that configuration, logs and metrics use."""
        ...

    async def open(self) -> None:
        """Get ready. Does not need the other side to be there."""
        ...

    async def close(self) -> None:
        """Let go of every connection. Messages under way are given up; closing twice is harmless."""
        ...

    async def send(self, outgoing: OutgoingMessage) -> Accepted:
        """Send one message, once, and say what the other side answered.

        Raises a :class:`TransportError`. A cancelled call may have sent the message.
        """
        ...

    async def check(self) -> None:
        """Raise a :class:`TransportError` where sending could not work now. Sends nothing."""
        ...


def quoted(text: str, outgoing: OutgoingMessage | None = None) -> str:
    """What the other side said, in one line, short and without an address.

    Servers like to repeat the recipient, in whole or only the part before the ``@``.
    """
    line = " ".join(text.split())
    for address in () if outgoing is None else (*outgoing.recipients, outgoing.sender):
        local_part = address.rpartition("@")[0]
        if len(local_part) >= _SHORTEST_LOCAL_PART:
            line = re.sub(rf"(?<!\w){re.escape(local_part)}(?!\w)", "***", line, flags=re.IGNORECASE)
    return scrub(_ADDRESS.sub("***", line))[:_LONGEST_QUOTE]
