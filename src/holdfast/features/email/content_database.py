"""HTML in the database: records of ``email_content``.

HTML that came through our intake is sealed, because it may contain personal data. An external producer may store HTML
here too, in clear, in the field ``html``: it has no key to seal the HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .content import ContentMissing, ContentUnavailable, encoded
from .records import CONTENT, content_key
from .vault import SealBroken, Vault


def content_context(key: str) -> str:
    """The context of sealed HTML: in another record, the HTML cannot be opened."""
    return f"{CONTENT}/{key}"


def new_html_fields(vault: Vault, company_id: str, ref: str, html: str) -> dict[str, Any]:
    """The fields of a new record. Raises :class:`ContentUnusable` for HTML that UTF-8 cannot encode."""
    content = encoded(html)
    sealed = vault.seal(html, context=content_context(content_key(company_id, ref)))
    return {"companyId": company_id, "sealed": sealed, "bytes": len(content), "sha256": sha256(content).hexdigest()}


def has_html(record: Mapping[str, Any] | None) -> bool:
    """Whether the record has HTML, sealed or in clear."""
    return record is not None and any(isinstance(record.get(name), str) for name in ("sealed", "html"))


def html_fields(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a record that describe its HTML, to write them again unchanged."""
    names = ("companyId", "sealed", "html", "bytes", "sha256")
    return {name: record[name] for name in names if name in record} if record is not None else {}


def html_in(vault: Vault, company_id: str, ref: str, record: Mapping[str, Any] | None) -> str:
    """The HTML of a record.

    Raises :class:`ContentMissing` if there is none. Raises :class:`ContentUnavailable` if no key opens it: somebody may
    have removed a key too early, and can add it again.
    """
    if record is None or not has_html(record):
        raise ContentMissing
    sealed = record.get("sealed")
    if not isinstance(sealed, str):
        return str(record["html"])
    try:
        return vault.open(sealed, context=content_context(content_key(company_id, ref)))
    except SealBroken:
        message = "The HTML cannot be opened with the keys that are set."
        raise ContentUnavailable(message) from None
