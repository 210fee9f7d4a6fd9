"""HTML in a folder: ``<root>/<companyId>/<ref>.html``.

Another program may be able to write below the root. So no name may lead out of the root: names contain no path,
symbolic links are not followed, and only regular files are read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .content import (
    MAX_CONTENT_BYTES,
    ContentMissing,
    ContentUnavailable,
    ContentUnusable,
    decoded,
    encoded,
    require_names,
)

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: if the name is a pipe, a blocking open would wait for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A link (ELOOP) or a file (ENOTDIR) in the place of a folder counts as missing.
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class FolderContent:
    """Content as files. A file is written completely or not at all."""

    def __init__(self, root: Path, limit: int = MAX_CONTENT_BYTES) -> None:
        self._root = root
        self._limit = limit

    async def open(self) -> None:
        """Create the root folder if it does not exist."""
        with _translated_errors():
            await asyncio.to_thread(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)

    async def close(self) -> None:
        """Nothing to close."""

    async def put(self, company_id: str, ref: str, html: str) -> None:
        """Write the file, unless it exists with the same bytes."""
        require_names(company_id, ref)
        content = encoded(html)
        with _translated_errors():
            await asyncio.to_thread(self._put, company_id, f"{ref}.html", content)

    async def get(self, company_id: str, ref: str) -> str:
        """Read the file, up to the limit."""
        require_names(company_id, ref)
        with _translated_errors():
            content = await asyncio.to_thread(self._get, company_id, f"{ref}.html")
        return decoded(content, self._limit)

    async def exists(self, company_id: str, ref: str) -> bool:
        """Whether there is a regular file of this name."""
        try:
            require_names(company_id, ref)
            with _translated_errors():
                await asyncio.to_thread(self._require_file, company_id, f"{ref}.html")
        except ContentMissing:
            return False
        return True

    async def delete(self, company_id: str, ref: str) -> None:
        """Remove the file."""
        with suppress(ContentMissing):
            require_names(company_id, ref)
            with _translated_errors():
                await asyncio.to_thread(self._delete, company_id, f"{ref}.html")

    def _put(self, company_id: str, name: str, content: bytes) -> None:
        with suppress(FileExistsError, FileNotFoundError):
            (self._root / company_id).mkdir(mode=0o700)
        with self._company(company_id) as folder:
            with suppress(OSError, ContentMissing):
                if self._read(folder, name) == content:
                    return
            unfinished = f".{secrets.token_hex(8)}.tmp"
            try:
                with os.fdopen(os.open(unfinished, _CREATE, 0o600, dir_fd=folder), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)
            os.fsync(folder)

    def _get(self, company_id: str, name: str) -> bytes:
        with self._company(company_id) as folder:
            return self._read(folder, name)

    def _read(self, folder: int, name: str) -> bytes:
        descriptor = os.open(name, _READ, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ContentUnusable
        with os.fdopen(descriptor, "rb") as file:
            return file.read(self._limit + 1)

    def _require_file(self, company_id: str, name: str) -> None:
        with self._company(company_id) as folder:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise ContentUnusable

    def _delete(self, company_id: str, name: str) -> None:
        with self._company(company_id) as folder:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _company(self, company_id: str) -> Iterator[int]:
        """The company's folder. It is held open, so that nobody can replace it by a link."""
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            # The folder was created at the start, so its disk is missing now. The disk and the content may come back.
            message = "The content folder is not there."
            raise ContentUnavailable(message) from None
        try:
            folder = os.open(company_id, _FOLDER, dir_fd=root)
        finally:
            os.close(root)
        try:
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turn errors of the operating system into content errors, without the paths in them."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise ContentMissing from None
        message = f"The content folder cannot be used ({errno.errorcode.get(error.errno or 0, 'EIO')})."
        raise ContentUnavailable(message) from None
