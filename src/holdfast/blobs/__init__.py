"""A store of blobs: content by its name, in records of the database, in a folder, or in an S3 bucket.

A feature takes a store and gives names; ``/`` divides a name. The feature decides what the names mean and when a blob
may go. :class:`Blobs` is for content that fits into memory, and has three backends: ``database``, ``folder`` and
``s3``. :class:`StreamedBlobs` adds files of any size, which arrive in pieces and are swept some time after their last
use; ``folder`` and ``s3`` have it. The errors are those of :mod:`holdfast.contracts.files`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.contracts.effects import Effect
from holdfast.contracts.files import FileMissing, Stored

Effects = Sequence[Effect]

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_plain(name: str) -> bool:
    """Whether this is one plain name: no slash, no dot at the beginning, no unusual characters."""
    return _PLAIN.fullmatch(name) is not None


def parts_of(name: str) -> list[str]:
    """The plain names that a name consists of. A name that could lead out of the store raises FileMissing."""
    parts = name.split("/")
    if not all(map(is_plain, parts)):
        raise FileMissing
    return parts


class Reader(Protocol):
    """Reads records: the context of a handler, or the store."""

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """One record."""
        ...


class Blobs(Protocol):
    """Keeps content under names. All methods may raise FilesUnavailable; a bad name raises FileMissing.

    The database keeps a blob in the transaction of the job that needs it. So the methods that write return effects:
    commit them with the job. A folder and a bucket write at once, and return none.
    """

    async def open(self) -> None:
        """Open connections."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...

    async def put(self, name: str, content: bytes, *, until: datetime | None = None) -> Effects:
        """Keep the content: all of it or nothing. In a folder or a bucket, it is durable when this returns.

        The same content again changes nothing. The database removes the blob after ``until``; a folder and a bucket
        keep it until it is deleted.
        """
        ...

    async def hold(self, name: str, records: Reader, *, until: datetime | None = None) -> Effects:
        """Keep a blob that exists until ``until``, at least. Raises FileMissing."""
        ...

    async def get(self, name: str, records: Reader, *, limit: int | None) -> bytes:
        """The content. Raises FileMissing, and FileTooLong if it has more than ``limit`` bytes; None: no limit."""
        ...

    async def delete(self, name: str) -> Effects:
        """Delete the blob. If there is none, nothing happens."""
        ...


class StreamedBlobs(Blobs, Protocol):
    """Keeps files, too. Files are removed some time after their last use.

    :meth:`sweep` removes them, unless the storage itself does.
    """

    async def keep(self, content: AsyncIterator[bytes], limit: int, name: Callable[[str], str]) -> Stored:
        """Keep a file while it arrives, in pieces. ``name`` makes its name of its SHA-256. Raises UploadTooLarge.

        The same content is kept once, and counts as used now. When this returns, the file is durable under its name.
        When this raises or is cancelled, no file is left.
        """
        ...

    def local_copy(self, name: str, sha256: str) -> AbstractAsyncContextManager[Path]:
        """The file with this content as a local file, for as long as the context lasts. Raises FileMissing."""
        ...

    async def put_all(self, folder: str, contents: Mapping[str, bytes | Path]) -> None:
        """Keep files below ``folder`` instead of those that are there. All are durable when this returns.

        A path is a local file with the content, which is read in pieces.
        """
        ...

    async def get(self, name: str, records: Reader | None = None, *, limit: int | None) -> bytes:
        """The content. Not much more than ``limit`` bytes are read."""
        ...

    def opened(self, name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The content in pieces, read as they are asked for. Raises FileMissing at once."""
        ...

    async def touch(self, name: str) -> bool:
        """Whether the file exists, or a folder with files. This counts as use of all of them."""
        ...

    async def sweep(self, older_than: timedelta) -> int:
        """Remove files that were not used for so long, and files that a crash left. Returns the number of files."""
        ...

    def address(self, name: str) -> str:
        """Where a person finds it: a path or an ``s3://`` address."""
        ...
