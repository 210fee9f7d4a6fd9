"""The store of HTML: a job refers to its HTML by a name, the ref.

Content belongs to one tenant: every call names the company, and a ref of another company does not exist. The HTML is a
blob ``<companyId>/<ref>``, in the database, or with the suffix ``.html`` in a folder or a bucket.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from holdfast import HoldfastError
from holdfast.blobs import Blobs, Effects, Reader, is_plain
from holdfast.blobs.database import DatabaseBlobs
from holdfast.feature import FileMissing, FilesUnavailable, FileTooLong, FileUnusable

from .records import CONTENT, content_key
from .vault import SealBroken, Vault

MAX_CONTENT_BYTES: Final = 2 * 1024 * 1024


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


class Content:
    """The HTML in a store of blobs. All methods may raise :class:`ContentUnavailable`.

    ``any_ref``: a ref may be any text, because it becomes no path.
    """

    def __init__(self, blobs: Blobs, *, limit: int | None = MAX_CONTENT_BYTES, any_ref: bool = False) -> None:
        self._blobs = blobs
        self._limit = limit
        self._any_ref = any_ref

    @property
    def writes_at_once(self) -> bool:
        """Whether HTML is stored before its job is recorded: in a folder or a bucket, not in the database."""
        return not isinstance(self._blobs, DatabaseBlobs)

    async def open(self) -> None:
        """Open the store."""
        with self._translated_errors():
            await self._blobs.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._blobs.close()

    async def put(self, company_id: str, ref: str, html: str, *, until: datetime | None = None) -> Effects:
        """Store the HTML: see :meth:`~holdfast.blobs.Blobs.put`. Raises :class:`ContentMissing` for a bad ref."""
        name, content = self._name(company_id, ref), encoded(html)
        with self._translated_errors():
            return await self._blobs.put(name, content, until=until)

    async def hold(self, company_id: str, ref: str, records: Reader, *, until: datetime | None = None) -> Effects:
        """Keep HTML that exists until then, at least. Raises :class:`ContentMissing`."""
        name = self._name(company_id, ref)
        with self._translated_errors():
            return await self._blobs.hold(name, records, until=until)

    async def get(self, company_id: str, ref: str, records: Reader) -> str:
        """The HTML. Raises :class:`ContentMissing`; never reads more than the limit."""
        name = self._name(company_id, ref)
        with self._translated_errors():
            content = await self._blobs.get(name, records, limit=self._limit)
        try:
            return content.decode()
        except UnicodeDecodeError:
            message = "The HTML is not UTF-8."
            raise ContentUnusable(message) from None

    def records_of(self, company_id: str, ref: str) -> list[tuple[str, str]]:
        """The records that :meth:`get` reads, by collection and key. None for HTML that is in no database."""
        return [] if self.writes_at_once else [(CONTENT, content_key(company_id, ref))]

    async def delete(self, company_id: str, ref: str) -> Effects:
        """Delete the HTML. If there is none, nothing happens."""
        try:
            name = self._name(company_id, ref)
        except ContentMissing:
            return ()
        with self._translated_errors():
            return await self._blobs.delete(name)

    def _name(self, company_id: str, ref: str) -> str:
        if not self._any_ref and not (is_plain(company_id) and is_plain(ref)):
            message = "The htmlRef is not a name that content can have."
            raise ContentMissing(message)
        return content_key(company_id, ref)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """The errors of the store, by the names that an email shows."""
        try:
            yield
        except FileTooLong:
            message = f"The HTML is longer than {self._limit} bytes."
            raise ContentUnusable(message) from None
        except FileUnusable:
            raise ContentUnusable from None
        except FileMissing:
            raise ContentMissing from None
        except FilesUnavailable as error:
            raise ContentUnavailable(error.message) from None


class SealedHtml(DatabaseBlobs):
    """HTML in records of ``email_content``.

    HTML that came through our intake is sealed, because it may contain personal data. An external producer may store
    HTML here too, in clear, in the field ``html``: it has no key to seal the HTML.
    """

    fields: Sequence[str] = ("companyId", "sealed", "html", "bytes", "sha256")

    def __init__(self, vault: Vault) -> None:
        super().__init__(CONTENT)
        self._vault = vault

    def pack(self, name: str, content: bytes) -> dict[str, Any]:
        """The sealed HTML, its size and its hash."""
        return {
            "companyId": name.partition("/")[0],
            "sealed": self._vault.seal(content.decode(), context=content_context(name)),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    def is_packed(self, record: Mapping[str, Any]) -> bool:
        """Whether the record has HTML, sealed or in clear."""
        return any(isinstance(record.get(field), str) for field in ("sealed", "html"))

    def unpack(self, name: str, record: Mapping[str, Any]) -> bytes:
        """The HTML. If no key opens it, a retry may help: somebody may have removed a key too early."""
        sealed = record.get("sealed")
        if not isinstance(sealed, str):
            return encoded(str(record["html"]))
        try:
            return self._vault.open(sealed, context=content_context(name)).encode()
        except SealBroken:
            message = "The HTML cannot be opened with the keys that are set."
            raise FilesUnavailable(message) from None


def content_in_database(vault: Vault) -> Content:
    """The HTML in the database."""
    return Content(SealedHtml(vault), limit=None, any_ref=True)


def content_context(key: str) -> str:
    """The context of sealed HTML: in another record, the HTML cannot be opened."""
    return f"{CONTENT}/{key}"


def content_ref(company_id: str, html: str) -> str:
    """The ref of this HTML for this company: equal content of one tenant has one ref, and no two tenants share one.

    A UUID in the layout of version 5, but from SHA-256: nobody can make two texts with the same ref.
    """
    digest = hashlib.sha256(company_id.lower().encode() + b"\0" + encoded(html)).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def encoded(html: str) -> bytes:
    """The HTML in UTF-8. Raises :class:`ContentUnusable` for half characters, which UTF-8 cannot encode."""
    try:
        return html.encode()
    except UnicodeEncodeError:
        message = "The HTML holds a half character, which cannot be written in UTF-8."
        raise ContentUnusable(message) from None
