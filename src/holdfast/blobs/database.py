"""Blobs in the database: records of a collection of the feature, with the blob's name as their key.

The feature declares the collection, with ``expiresAt`` as its expiry.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from holdfast.contracts.effects import Delete, Upsert
from holdfast.contracts.files import FileMissing, FileTooLong
from holdfast.contracts.times import isoformat

from . import Effects, Reader


class DatabaseBlobs:
    """Keeps blobs as records. A name may be any text here. The effects write, and only when they are committed.

    A feature that packs content in another way, for example sealed, overrides ``fields``, the names of the fields with
    the content, and the three methods that use them.
    """

    fields: Sequence[str] = ("content", "bytes", "sha256")

    def __init__(self, collection: str) -> None:
        self._collection = collection

    def pack(self, name: str, content: bytes) -> dict[str, Any]:  # noqa: ARG002 - a seal needs the name
        """The fields of a new record."""
        return {"content": b64encode(content).decode(), "bytes": len(content), "sha256": sha256(content).hexdigest()}

    def is_packed(self, record: Mapping[str, Any]) -> bool:
        """Whether the record has content."""
        return isinstance(record.get("content"), str)

    def unpack(self, name: str, record: Mapping[str, Any]) -> bytes:  # noqa: ARG002 - a seal needs the name
        """The content of a record that has content."""
        return b64decode(record["content"])

    async def open(self) -> None:
        """Nothing to open: the store is open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def put(self, name: str, content: bytes, *, until: datetime | None = None) -> Effects:
        """The effect that writes the record, or moves the expiry of a record that exists."""
        return [self._upsert(name, until, self.pack(name, content))]

    async def hold(self, name: str, records: Reader, *, until: datetime | None = None) -> Effects:
        """The effect that moves the expiry. If the record is deleted meanwhile, the effect writes it again."""
        record = await self._record(name, records)
        return [self._upsert(name, until, {field: record[field] for field in self.fields if field in record})]

    async def get(self, name: str, records: Reader, *, limit: int | None) -> bytes:
        """The content of the record."""
        content = self.unpack(name, await self._record(name, records))
        if limit is not None and len(content) > limit:
            raise FileTooLong
        return content

    async def delete(self, name: str) -> Effects:
        """The effect that deletes the record."""
        return [Delete(self._collection, name)]

    def _upsert(self, name: str, until: datetime | None, fields: dict[str, Any]) -> Upsert:
        return Upsert(self._collection, name, {} if until is None else {"expiresAt": isoformat(until)}, fields)

    async def _record(self, name: str, records: Reader) -> Mapping[str, Any]:
        record = await records.get(self._collection, name)
        if record is None or not self.is_packed(record):
            raise FileMissing
        return record
