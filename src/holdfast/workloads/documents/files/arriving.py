"""A file while it arrives: it has a name of chance, and a lock that says that somebody is at it.

The lock ends with the process. So what has no lock was left by a crash, and may go.
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

from holdfast.contracts.files import FilesUnavailable, Stored, UploadTooLarge
from holdfast.workloads.documents.sniffing import HEAD

P = ParamSpec("P")
T = TypeVar("T")

PIECE: Final = 1024 * 1024
"""Bytes that go to the disk, and through the hash, at a time. Fewer would be more trips to a thread."""

# Nobody makes a file and needs so long to lock it.
_LEFT_BEHIND: Final = timedelta(hours=1)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do blocking work beside the event loop. It is over when this ends, also when this is cancelled."""
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
    """Do work with files beside the event loop; what the system says against it is FilesUnavailable."""
    with told():
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
        """What there is by now."""
        return Stored(self._digest.hexdigest(), self._size, self._head)

    def begin(self) -> None:
        """Make the file, and lock it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def write(self, piece: bytes | bytearray) -> None:
        """Write all of it."""
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
        """What is written survives a power cut, once the folder in which it has a name is synced too."""
        os.fsync(self._open)

    def end(self) -> None:
        """Take the file away, unless it was moved elsewhere, and let go of it."""
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
    """All of ``content`` as a file in ``folder``, which is gone at the end, unless it was moved elsewhere.

    Raises UploadTooLarge with the first piece that is too much, and FilesUnavailable. Never much more than ``PIECE``
    is in memory. What ``content`` itself raises is not ours, and passes as it is.
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
    """Remove what a crash left here. What is still arriving stays, however long it takes. The number of files."""
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
    """Remove a file, or a folder with all its files. How many they were."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return 1
    files = sum(1 for _ in path.iterdir())
    shutil.rmtree(path)
    return files


@contextmanager
def told() -> Iterator[None]:
    """Say what the system's errors mean, without the paths in them."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            message = f"There is no room for files ({reason})."
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            message = f"We have no right to use the folder of files ({reason})."
        else:
            message = f"The folder of files cannot be used ({reason})."
        raise FilesUnavailable(message) from None


def sync_folder(folder: Path) -> None:
    """The names in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
