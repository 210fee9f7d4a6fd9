"""HTML in the database: documents of ``email_content``.

What came through our door is sealed: an email's HTML may say anything about a person. A program that puts its jobs
straight into the queue may keep their HTML here too, in clear, in the field ``html``: it has no key to seal it with.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .content import ContentMissing, ContentUnavailable, encoded
from .records import CONTENT, content_key
from .vault import SealBroken, Vault


def content_context(key: str) -> str:
    """What binds sealed HTML to its one document."""
    return f"{CONTENT}/{key}"


def html_facts(vault: Vault, company_id: str, ref: str, html: str) -> dict[str, Any]:
    """The document of this HTML. Raises :class:`ContentUnusable` for HTML that UTF-8 cannot write."""
    content = encoded(html)
    sealed = vault.seal(html, context=content_context(content_key(company_id, ref)))
    return {"companyId": company_id, "sealed": sealed, "bytes": len(content), "sha256": sha256(content).hexdigest()}


def has_html(document: Mapping[str, Any] | None) -> bool:
    """Whether the document holds HTML, sealed or not."""
    return document is not None and any(isinstance(document.get(name), str) for name in ("sealed", "html"))


def facts_of(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a document says of its HTML, to write it again as it is."""
    names = ("companyId", "sealed", "html", "bytes", "sha256")
    return {name: document[name] for name in names if name in document} if document is not None else {}


def html_in(vault: Vault, company_id: str, ref: str, document: Mapping[str, Any] | None) -> str:
    """The HTML that the document holds.

    Raises :class:`ContentMissing` where there is none, and :class:`ContentUnavailable` where no key opens it: somebody
    may have taken a key away too early, and can put it back.
    """
    if document is None or not has_html(document):
        raise ContentMissing
    sealed = document.get("sealed")
    if not isinstance(sealed, str):
        return str(document["html"])
    try:
        return vault.open(sealed, context=content_context(content_key(company_id, ref)))
    except SealBroken:
        message = "The HTML cannot be opened with the keys that are set."
        raise ContentUnavailable(message) from None
