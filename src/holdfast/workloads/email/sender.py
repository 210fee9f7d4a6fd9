"""Who emails are from, as people write it: ``Name <address>``."""

from __future__ import annotations

from email.utils import parseaddr

from .mime import Sender


def sender_of(text: str) -> Sender:
    """The sender that the text names. Raises ValueError, without the text, when it names none."""
    name, address = parseaddr(text)
    return Sender(address, name)
