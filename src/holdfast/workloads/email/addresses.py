"""Email addresses: the one form in which they are compared and sent, and the mask under which people see them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from email_validator import EmailNotValidError, validate_email

MAX_ADDRESS: Final = 254
"""RFC 5321: what fits between the angle brackets of a command."""

MAX_LOCAL_PART: Final = 64

_LONGEST_TOP_LEVEL: Final = 24
_REMEMBERED: Final = 4096


@lru_cache(maxsize=_REMEMBERED)  # one email asks for the same few addresses again and again
def normalised(address: str) -> str:
    """The address as every server understands it: an ASCII domain in lower case, the local part as it was written.

    Raises ValueError with a sentence that says what an address must be and never repeats this one.
    """
    if len(address) > MAX_ADDRESS:
        message = f"must not be longer than {MAX_ADDRESS} characters"
        raise ValueError(message)
    try:
        found = validate_email(address, check_deliverability=False, allow_smtputf8=False)
    except EmailNotValidError:
        # The library's own message may quote characters of the address.
        message = "must be an email address, such as name@example.com"
        raise ValueError(message) from None
    # email-validator lets 65 characters pass before the @.
    if len(found.local_part) > MAX_LOCAL_PART:
        message = f"must not have more than {MAX_LOCAL_PART} characters before the @"
        raise ValueError(message)
    return f"{found.local_part}@{found.ascii_domain.lower()}"


def mask_address(address: str) -> str:
    """``user@example.com`` as ``u***@e***.com``. Any text is taken; no more than this is ever shown of it."""
    local, at, domain = address.rpartition("@")
    if not at:
        return "***"
    name, dot, top = domain.rpartition(".")
    if not dot:
        name, top = domain, ""
    # A top-level domain is a word. Whatever else stands there may be part of what is to be hidden.
    shown_top = f".{top}" if 1 < len(top) <= _LONGEST_TOP_LEVEL and top.isalpha() else ""
    return f"{_first(local)}***@{_first(name)}***{shown_top}"


def _first(text: str) -> str:
    return text[0] if text and text[0].isalnum() else ""
