"""Blobs in the database: records of a collection of the feature, with the blob's name as their key.

The feature declares the collection, with ``expiresAt`` as its expiry.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from holdfast.contracts.effects import Delete, Effect, Upsert
from holdfast.contracts.files import FileMissing, FileTooLong
from holdfast.contracts.times import isoformat

from . import Reader


class Packing(Protocol):
    """How content becomes fields of a record. ``fields`` are the names of all these fields."""

    fields: Sequence[str]

    def pack(self, name: str, content: bytes) -> dict[str, Any]:
        """The fields of a new record."""
        ...

    def is_packed(self, record: Mapping[str, Any]) -> bool:
        """Whether the record has content."""
        ...

    def unpack(self, name: str, record: Mapping[str, Any]) -> bytes:
        """The content of a record that has content."""
        ...


class Base64:
    """Content as text, with its size and its hash."""

    fields: Sequence[str] = ("content", "bytes", "sha256")

    def pack(self, name: str, content: bytes) -> dict[str, Any]:
        """The fields of a new record."""
        del name
        return {"content": b64encode(content).decode(), "bytes": len(content), "sha256": sha256(content).hexdigest()}

    def is_packed(self, record: Mapping[str, Any]) -> bool:
        """Whether there is text."""
        return isinstance(record.get("content"), str)

    def unpack(self, name: str, record: Mapping[str, Any]) -> bytes:
        """The content."""
        del name
        return b64decode(record["content"])


class DatabaseBlobs:
    """Keeps blobs as records. A name may be any text here. The effects write, and only when they are committed."""

    def __init__(self, collection: str, packing: Packing | None = None) -> None:
        self._collection = collection
        self._packing: Packing = packing or Base64()

    async def open(self) -> None:
        """Nothing to open: the store is open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def put(self, name: str, content: bytes, *, until: datetime | None = None) -> Sequence[Effect]:
        """The effect that writes the record, or moves the expiry of a record that exists."""
        return [self._upsert(name, until, self._packing.pack(name, content))]

    async def hold(self, name: str, records: Reader, *, until: datetime | None = None) -> Sequence[Effect]:
        """The effect that moves the expiry. If the record is deleted meanwhile, the effect writes it again."""
        record = await self._record(name, records)
        kept = {field: record[field] for field in self._packing.fields if field in record}
        return [self._upsert(name, until, kept)]

    async def get(self, name: str, records: Reader, *, limit: int | None) -> bytes:
        """The content of the record."""
        content = self._packing.unpack(name, await self._record(name, records))
        if limit is not None and len(content) > limit:
            raise FileTooLong
        return content

    async def delete(self, name: str) -> Sequence[Effect]:
        """The effect that deletes the record."""
        return [Delete(self._collection, name)]

    def _upsert(self, name: str, until: datetime | None, fields: dict[str, Any]) -> Upsert:
        lasts = {} if until is None else {"expiresAt": isoformat(until)}
        return Upsert(self._collection, name, lasts, fields)

    async def _record(self, name: str, records: Reader) -> Mapping[str, Any]:
        record = await records.get(self._collection, name)
        if record is None or not self._packing.is_packed(record):
            raise FileMissing
        return record
