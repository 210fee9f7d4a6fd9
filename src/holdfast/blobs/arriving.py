"""A file while it arrives. It has a random name, and a lock that shows that a process is writing it.

The lock ends with the process. So a file without a lock was left by a crash, and may be removed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from holdfast.contracts.files import HEAD, FilesUnavailable, Stored, UploadTooLarge

P = ParamSpec("P")
T = TypeVar("T")

FOLDER: Final = "folder of files"
"""The name of a folder in messages."""

PIECE: Final = 1024 * 1024
"""Bytes that are written and hashed at a time. Smaller pieces would need more calls to a thread."""

SMALL_PIECE: Final = 256 * 1024
"""Bytes that are read at a time for somebody who may take them slowly, and who has many others beside him."""

# No process needs this long between making a file and locking it.
_LEFT_BEHIND: Final = timedelta(hours=1)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do blocking work in a thread. When this returns, also by cancellation, the work has ended."""
    future = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


async def on_disk(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work with files in a thread. An error of the system raises FilesUnavailable."""
    with as_unavailable():
        return await in_thread(work, *args, **kwargs)


class Arriving:
    """A file in ``folder`` that is written piece by piece. Its methods block, and raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / secrets.token_hex(16)
        self._digest = sha256()
        self._size = 0
        self._head = b""
        self._descriptor: int | None = None

    @property
    def stored(self) -> Stored:
        """Hash, size and first bytes of what was written so far."""
        return Stored(self._digest.hexdigest(), self._size, self._head)

    def begin(self) -> None:
        """Make the file, and lock it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def write(self, piece: bytes | bytearray) -> None:
        """Write the whole piece."""
        self._size += len(piece)
        self._head += bytes(piece[: HEAD - len(self._head)])
        self._digest.update(piece)
        left = memoryview(piece)
        while left:
            left = left[os.write(self._open, left) :]

    def read(self, offset: int, size: int) -> bytes:
        """Some of what was written."""
        return os.pread(self._open, size, offset)

    def sync(self) -> None:
        """Sync the file to disk. It survives a power cut once its folder is synced too."""
        os.fsync(self._open)

    def end(self) -> None:
        """Remove the file, unless it was moved, and unlock it."""
        if self._descriptor is not None:
            try:
                self.path.unlink(missing_ok=True)
            finally:
                os.close(self._descriptor)

    @property
    def _open(self) -> int:
        if self._descriptor is None:
            message = "Arriving.begin() has not been called."
            raise RuntimeError(message)
        return self._descriptor


@asynccontextmanager
async def arrived(folder: Path, content: AsyncIterator[bytes], limit: int) -> AsyncIterator[Arriving]:
    """All of ``content`` as a file in ``folder``. The file is removed at the end, unless it was moved.

    Raises UploadTooLarge at the first piece beyond the limit, and FilesUnavailable. Not much more than ``PIECE`` is in
    memory. Exceptions of ``content`` itself pass unchanged.
    """
    file = Arriving(folder)
    try:
        await on_disk(file.begin)
        waiting = bytearray()
        taken = 0
        async for piece in content:
            taken += len(piece)
            if taken > limit:
                raise UploadTooLarge
            waiting += piece
            if len(waiting) >= PIECE:
                await on_disk(file.write, waiting)
                waiting = bytearray()
        await on_disk(file.write, waiting)
        yield file
    finally:
        await on_disk(file.end)


def sweep_arriving(folder: Path, older_than: timedelta) -> int:
    """Remove files that a crash left here. A file that is still arriving stays. Returns the number of files."""
    oldest = time.time() - min(older_than, _LEFT_BEHIND).total_seconds()
    removed = 0
    for entry in list(os.scandir(folder)):
        with suppress(FileNotFoundError, BlockingIOError):
            if entry.stat(follow_symlinks=False).st_mtime > oldest:
                continue
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removed += remove(Path(entry.path))
            finally:
                os.close(descriptor)
    return removed


def remove(path: Path) -> int:
    """Remove a file, or a folder with all its files. Returns the number of files."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return 1
    files = sum(1 for _ in path.iterdir())
    shutil.rmtree(path)
    return files


@contextmanager
def as_unavailable(place: str = FOLDER) -> Iterator[None]:
    """Turns the system's errors into FilesUnavailable, without the paths in their messages."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            message = f"There is no room for files ({reason})."
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            message = f"We have no right to use the {place} ({reason})."
        else:
            message = f"The {place} cannot be used ({reason})."
        raise FilesUnavailable(message) from None


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(descriptor: int, content: bytes | Path) -> None:
    """Write a new file, and sync it to disk. Closes the descriptor. A path is a file with the content."""
    with os.fdopen(descriptor, "wb") as file:
        if isinstance(content, Path):
            with content.open("rb") as source:
                shutil.copyfileobj(source, file, PIECE)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
