"""The store of HTML: a job refers to its HTML by a name, the ref.

Content belongs to one tenant: every call names the company, and a ref of another company does not exist.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final, Protocol

from holdfast.contracts.errors import HoldfastError

MAX_CONTENT_BYTES: Final = 2 * 1024 * 1024

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ContentError(HoldfastError):
    """The HTML of an email cannot be read."""

    code = "CONTENT_ERROR"


class ContentMissing(ContentError):
    """There is no HTML under this htmlRef, and a retry will not find any."""

    code = "CONTENT_MISSING"


class ContentUnusable(ContentMissing):
    """The content under this htmlRef is not HTML that can be sent."""

    code = "CONTENT_UNUSABLE"


class ContentUnavailable(ContentError):
    """The store of HTML cannot be reached now."""

    code = "CONTENT_UNAVAILABLE"


class Content(Protocol):
    """A store of HTML. All methods may raise :class:`ContentUnavailable`."""

    async def open(self) -> None:
        """Open the store."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...

    async def put(self, company_id: str, ref: str, html: str) -> None:
        """Store the HTML durably. Storing it again changes nothing. Raises :class:`ContentMissing` for a bad ref."""
        ...

    async def get(self, company_id: str, ref: str) -> str:
        """The HTML. Raises :class:`ContentMissing`; never reads more than the limit."""
        ...

    async def exists(self, company_id: str, ref: str) -> bool:
        """Whether there is something under the ref."""
        ...

    async def delete(self, company_id: str, ref: str) -> None:
        """Delete the HTML. If there is none, nothing happens."""
        ...


def content_ref(company_id: str, html: str) -> str:
    """The ref of this HTML for this company: equal content of one tenant has one ref, and no two tenants share one.

    A UUID in the layout of version 5, but from SHA-256: nobody can make two texts with the same ref.
    """
    digest = hashlib.sha256(company_id.lower().encode() + b"\0" + encoded(html)).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def is_name(text: str) -> bool:
    """Whether a company id or a ref is safe as a file name or an object name: no path, no special characters."""
    return _NAME.fullmatch(text) is not None


def require_names(company_id: str, ref: str) -> None:
    """Refuse a name that could lead out of the store. No content has such a name."""
    if not (is_name(company_id) and is_name(ref)):
        message = "The htmlRef is not a name that content can have."
        raise ContentMissing(message)


def encoded(html: str) -> bytes:
    """The HTML in UTF-8. Raises :class:`ContentUnusable` for half characters, which UTF-8 cannot encode."""
    try:
        return html.encode()
    except UnicodeEncodeError:
        message = "The HTML holds a half character, which cannot be written in UTF-8."
        raise ContentUnusable(message) from None


def decoded(content: bytes, limit: int) -> str:
    """The text of content that was read up to one byte beyond ``limit``. Raises :class:`ContentUnusable`."""
    if len(content) > limit:
        message = f"The HTML is longer than {limit} bytes."
        raise ContentUnusable(message)
    try:
        return content.decode()
    except UnicodeDecodeError:
        message = "The HTML is not UTF-8."
        raise ContentUnusable(message) from None
