"""Getting the file of a job: from the upload, from a folder of this machine, or from a URL."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.feature import HEAD, FileMissing, FilesUnavailable

from .contract import DocumentJob, InputType, Upload
from .failures import Code, DocumentFailure
from .fetching import Fetcher
from .files import Files
from .local_paths import LocalPaths
from .sniffing import mismatch

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
