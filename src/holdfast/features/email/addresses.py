"""Email addresses: the form in which they are compared and sent, and the mask in which people see them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from email_validator import EmailNotValidError, validate_email

MAX_ADDRESS: Final = 254
"""RFC 5321: what fits between the angle brackets of a command."""

MAX_LOCAL_PART: Final = 64

_MAX_TOP_LEVEL: Final = 24
_CACHE_SIZE: Final = 4096


@lru_cache(maxsize=_CACHE_SIZE)  # one email normalises the same few addresses several times
def normalised(address: str) -> str:
    """The address in the form that every server reads: an ASCII domain in lower case, the local part unchanged.

    Raises ValueError with a sentence that explains the rule and never repeats the address.
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
    """``user@example.com`` as ``u***@e***.com``. It accepts any text and never shows more of it than this."""
    local, at, domain = address.rpartition("@")
    if not at:
        return "***"
    name, dot, top = domain.rpartition(".")
    if not dot:
        name, top = domain, ""
    # A top-level domain is a word. Any other text after the last dot may be something that must be hidden.
    shown_top = f".{top}" if 1 < len(top) <= _MAX_TOP_LEVEL and top.isalpha() else ""
    return f"{_first(local)}***@{_first(name)}***{shown_top}"


def _first(text: str) -> str:
    return text[0] if text and text[0].isalnum() else ""
