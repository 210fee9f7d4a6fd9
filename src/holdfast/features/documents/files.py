"""The files of documents: uploads by their content, results by the job they belong to.

They are ``uploads/<first two of the sha256>/<sha256>-<upload_id>`` and ``results/<job_id>/<attempt>/<name>`` in a store
of blobs. Uploads of older versions have no ``upload_id``.

The file of a job comes from an upload, from a folder of this machine, or from a URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.blobs import StreamedBlobs, is_plain
from holdfast.feature import HEAD, FileMissing, FilesUnavailable, Stored

from .contract import DocumentJob, InputType, Upload
from .failures import Code, DocumentFailure
from .fetching import Fetcher
from .local_paths import LocalPaths
from .sniffing import mismatch

UPLOADS: Final = "uploads"
RESULTS: Final = "results"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PARTS_OF_A_PLACE: Final = 2


class Files:
    """Keeps uploads and results. Both are removed some time after their last use. Raises FilesUnavailable."""

    def __init__(self, blobs: StreamedBlobs) -> None:
        self._blobs = blobs

    async def open(self) -> None:
        """Open the store."""
        await self._blobs.open()

    async def close(self) -> None:
        """Close the store."""
        await self._blobs.close()

    async def keep(self, content: AsyncIterator[bytes], limit: int, upload_id: str | None = None) -> Stored:
        """Keep an upload while it arrives: see :meth:`~holdfast.blobs.StreamedBlobs.keep`."""
        return await self._blobs.keep(content, limit, partial(upload_name, upload_id=upload_id))

    async def delete_upload(self, sha256: str, upload_id: str) -> None:
        """Delete an upload that no job uses. If there is none, nothing happens."""
        await self._blobs.delete(upload_name(sha256, upload_id))

    def local_copy(self, sha256: str, upload_id: str | None = None) -> AbstractAsyncContextManager[Path]:
        """The upload as a local file, for as long as the context lasts. Raises FileMissing."""
        return self._blobs.local_copy(upload_name(sha256, upload_id), sha256)

    async def write(self, place: str, outputs: Mapping[str, bytes | Path]) -> str:
        """Keep the output files of a job under ``place`` (``<job_id>/<attempt>``); all are durable when this returns.

        A path is a local file with the content.

        Returns the ``output_path``: a folder's path or an ``s3://`` address. Writing the same place again replaces it.
        """
        if not _is_place(place) or not all(map(is_plain, outputs)):
            message = "A place is <job_id>/<attempt>, and output files have plain names."
            raise ValueError(message)
        folder = f"{RESULTS}/{place}"
        await self._blobs.put_all(folder, outputs)
        return self._blobs.address(folder)

    async def read(self, output_path: str, name: str) -> bytes:
        """One output file. Raises FileMissing, also for an ``output_path`` that is not of this storage."""
        folder = self._folder(output_path)
        if not is_plain(name):
            raise FileMissing
        return await self._blobs.get(f"{folder}/{name}", limit=None)

    def opened(self, output_path: str, name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """One output file in pieces: see :meth:`read`."""
        folder = self._folder(output_path)
        if not is_plain(name):
            raise FileMissing
        return self._blobs.opened(f"{folder}/{name}")

    async def touch(self, sha256: str | None = None, output_path: str | None = None) -> bool:
        """Whether both exist. This counts as use."""
        try:
            upload = None if sha256 is None else upload_name(sha256)
            folder = None if output_path is None else self._folder(output_path)
        except FileMissing:
            return False
        has_upload = upload is None or await self._blobs.touch(upload)
        return (folder is None or await self._blobs.touch(folder)) and has_upload

    async def sweep(self, older_than: timedelta) -> int:
        """Remove files that were not used for so long, and files that a crash left. Returns the number of files."""
        return await self._blobs.sweep(older_than)

    def _folder(self, output_path: str) -> str:
        """The name of an ``output_path`` in the store. Any other path raises FileMissing."""
        home = f"{self._blobs.address(RESULTS)}/"
        place = output_path.removeprefix(home)
        if not output_path.startswith(home) or not _is_place(place):
            raise FileMissing
        return f"{RESULTS}/{place}"


def upload_name(sha256: str, upload_id: str | None = None) -> str:
    """The name of an upload in the store. Raises FileMissing if the text is no SHA-256 in hex."""
    if not _DIGEST.fullmatch(sha256):
        raise FileMissing
    name = sha256 if upload_id is None else f"{sha256}-{upload_id}"
    return f"{UPLOADS}/{sha256[:2]}/{name}"


def _is_place(place: str) -> bool:
    parts = place.split("/")
    return len(parts) == _PARTS_OF_A_PLACE and all(map(is_plain, parts))


_FOLDER: Final = "job-"
"""The prefix of temporary folders."""


@dataclass(frozen=True, slots=True)
class Source:
    """A local file: its path, and the SHA-256 of its content."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The places that files come from. A file has at most ``max_bytes``. Its first bytes must fit its input type."""

    files: Files
    paths: LocalPaths
    fetcher: Fetcher
    scratch: Path
    max_bytes: int

    @contextlib.asynccontextmanager
    async def local_copy(self, data: DocumentJob) -> AsyncIterator[Source]:
        """The file, for as long as the context lasts. Raises :class:`DocumentFailure`."""
        payload = data.payload
        if payload.upload is not None:
            async with self._uploaded(data, payload.upload) as source:
                yield source
            return
        async with self.temporary_folder() as folder:
            copy = folder / "file"
            if payload.local_path is not None:
                copying = partial(self.paths.of(data.company_id).copy_to, payload.local_path, copy, self.max_bytes)
                sha256, _, head = await asyncio.to_thread(copying)
            else:
                fetched = await self.fetcher.fetch(payload.url or "", copy, what=_word_for(data.input_type))
                sha256, head = fetched.sha256, fetched.head
            require_content(data.input_type, head)
            yield Source(copy, sha256)

    @contextlib.asynccontextmanager
    async def temporary_folder(self) -> AsyncIterator[Path]:
        """A folder of our own, for as long as the context lasts."""
        await asyncio.to_thread(self.scratch.mkdir, parents=True, exist_ok=True, mode=0o700)
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=_FOLDER, dir=self.scratch))
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def sweep(self, older_than: timedelta) -> None:
        """Remove temporary folders that crashed workers have left."""
        await asyncio.to_thread(_sweep, self.scratch, time.time() - older_than.total_seconds())

    @contextlib.asynccontextmanager
    async def _uploaded(self, data: DocumentJob, upload: Upload) -> AsyncIterator[Source]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                path = await stack.enter_async_context(self.files.local_copy(upload.sha256, upload.upload_id))
                head = await asyncio.to_thread(_head_of, path)
            except FileMissing as error:
                message = f"File not found: {upload.filename or upload.sha256}"
                raise DocumentFailure(Code.FILE_NOT_FOUND, message) from error
            except FilesUnavailable as error:
                raise DocumentFailure(Code.STORAGE_UNAVAILABLE) from error
            require_content(data.input_type, head)
            yield Source(path, upload.sha256)


def require_content(input_type: InputType, head: bytes) -> None:
    """Refuse a file whose first bytes do not fit its input type."""
    problem = mismatch(input_type, head)
    if problem is not None:
        raise DocumentFailure(Code.CONTENT_MISMATCH, problem)


def _sweep(scratch: Path, before: float) -> None:
    for folder in scratch.glob(f"{_FOLDER}*"):
        with contextlib.suppress(FileNotFoundError):  # another worker removed it first
            if folder.stat().st_mtime < before:
                shutil.rmtree(folder, ignore_errors=True)


def _head_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _word_for(input_type: InputType) -> str:
    """The name of the file in messages. For a video, rule D21 has "Unable to download audio"."""
    return "document" if input_type is InputType.PDF else "audio"
