"""Blobs in a folder: ``<root>/<name>``.

:class:`StreamedFolderBlobs` has two more names below the root::

    <root>/incoming/        files that are arriving; files that a crash left here are swept
    <root>/.lock            shared by all who use a file, exclusive for the one who removes files

There a file was last used at its time of modification, and files that were put together at that of their folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Final, ParamSpec, TypeVar

from holdfast.contracts.files import FileMissing, FilesUnavailable, FileTooLong, FileUnusable, Stored

from . import Effects, Reader, parts_of
from .arriving import (
    FOLDER,
    SMALL_PIECE,
    Arriving,
    arrived,
    as_unavailable,
    in_thread,
    on_disk,
    remove,
    sweep_arriving,
    sync_folder,
    write_durably,
)

P = ParamSpec("P")
T = TypeVar("T")

_INCOMING: Final = "incoming"
_LOCK: Final = ".lock"

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: if the name is a pipe, a blocking open would wait for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A link (ELOOP) or a file (ENOTDIR) in the place of a folder counts as missing.
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class FolderBlobs:
    """Keeps blobs as files that only our user may read. A file is there whole or not at all.

    Another program may be able to write below the root. So no name may lead out of the root: names are plain, symbolic
    links are not followed, and only regular files are read. ``suffix`` ends the names of all files. ``place`` is the
    folder's name in messages.
    """

    def __init__(self, root: Path, *, suffix: str = "", place: str = FOLDER) -> None:
        self._root = root.absolute()
        self._suffix = suffix
        self._place = place

    async def open(self) -> None:
        """Make the root folder. If it is missing later, the disk is missing."""
        await self._on_disk(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)

    async def close(self) -> None:
        """Nothing to close."""

    async def put(self, name: str, content: bytes, *, until: datetime | None = None) -> Effects:
        """Write the file, unless it exists with the same bytes."""
        del until
        await self._on_disk(self._put, parts_of(name), content)
        return ()

    async def hold(self, name: str, records: Reader | None = None, *, until: datetime | None = None) -> Effects:
        """Look whether there is a regular file of this name."""
        del records, until
        await self._on_disk(self._require, parts_of(name))
        return ()

    async def get(self, name: str, records: Reader | None = None, *, limit: int | None) -> bytes:
        """Read the file."""
        del records
        content = await self._on_disk(self._get, parts_of(name), -1 if limit is None else limit + 1)
        if limit is not None and len(content) > limit:
            raise FileTooLong
        return content

    async def delete(self, name: str) -> Effects:
        """Remove the file."""
        with suppress(FileMissing):
            await self._on_disk(self._delete, parts_of(name))
        return ()

    def _put(self, parts: Sequence[str], content: bytes) -> None:
        with self._innermost(parts, make=True) as (folder, name):
            with suppress(OSError, FileMissing):
                if _read(os.open(name, _READ, dir_fd=folder), len(content) + 1) == content:
                    return
            unfinished = f".{secrets.token_hex(8)}.tmp"
            try:
                write_durably(os.open(unfinished, _CREATE, 0o600, dir_fd=folder), content)
                os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)
            os.fsync(folder)

    def _require(self, parts: Sequence[str]) -> None:
        with self._innermost(parts) as (folder, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise FileUnusable

    def _get(self, parts: Sequence[str], most: int) -> bytes:
        with self._innermost(parts) as (folder, name):
            descriptor = os.open(name, _READ, dir_fd=folder)
        return _read(descriptor, most)

    def _delete(self, parts: Sequence[str]) -> None:
        with self._innermost(parts) as (folder, name):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _innermost(self, parts: Sequence[str], *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of a blob, and the name in it. The folder is held open: nobody can replace it by a link."""
        *names, last = parts
        try:
            folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            # The folder was there at the start, so its disk is missing now. The disk and the blobs may come back.
            message = f"The {self._place} is not there."
            raise FilesUnavailable(message) from None
        try:
            for name in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=folder)
                        os.fsync(folder)
                outer, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
                os.close(outer)
            yield folder, f"{last}{self._suffix}"
        except OSError as error:
            if error.errno in _NOT_THERE:
                raise FileMissing from None
            raise
        finally:
            os.close(folder)

    async def _on_disk(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with as_unavailable(self._place):
            return await in_thread(work, *args, **kwargs)


class StreamedFolderBlobs(FolderBlobs):
    """Keeps files below a ``root`` of our own, for the processes of one machine. The first file makes the folders.

    Files that are put together are there whole or not at all. A complete upload may stay even if its last step was
    cancelled, because another request may rely on the same file by then. The sweep removes it later. ``top`` are the
    first names of all files: the sweep looks there.
    """

    def __init__(self, root: Path, top: Sequence[str]) -> None:
        super().__init__(root)
        self._top = top
        self._incoming = self._root / _INCOMING
        self._ready = False

    async def open(self) -> None:
        """Do nothing: many processes keep no files."""

    async def keep(self, content: AsyncIterator[bytes], limit: int, name: Callable[[str], str]) -> Stored:
        """Keep a file."""
        await on_disk(self._make_ready)
        async with arrived(self._incoming, content, limit) as file:
            await on_disk(file.sync)
            await on_disk(self._move_in, file, self._path(name(file.stored.sha256)))
            return file.stored

    @asynccontextmanager
    async def local_copy(self, name: str, sha256: str) -> AsyncIterator[Path]:
        """The file itself. It counts as used at the beginning and at the end: sweep only what is older than a job."""
        del sha256
        path = self._path(name)
        if not await on_disk(self._use, path):
            raise FileMissing
        try:
            yield path
        finally:
            await on_disk(self._use, path)

    async def put_all(self, folder: str, contents: Mapping[str, bytes | Path]) -> None:
        """Keep files. Readers find the former files, or the new ones."""
        target = self._path(folder)
        await on_disk(self._make_ready)
        await on_disk(self._replace, target, contents)

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read the file in pieces. A file that is removed meanwhile is read to its end."""
        file = await on_disk(self._open, parts_of(name))
        try:
            yield _pieces(file)
        finally:
            await on_disk(file.close)

    async def touch(self, name: str) -> bool:
        """Whether the file or the folder exists. It counts as used now."""
        return await on_disk(self._use, self._path(name))

    async def sweep(self, older_than: timedelta) -> int:
        """Remove old files. A file that is used meanwhile stays."""
        if not self._ready and not await on_disk(self._incoming.is_dir):  # no file was ever kept here
            return 0
        removed = await on_disk(sweep_arriving, self._incoming, older_than)
        # One call for each folder, so that a worker that stops does not wait for all of them.
        for top in self._top:
            for folder in await on_disk(_inside, self._root / top):
                removed += await on_disk(self._sweep, folder, older_than)
        return removed

    def address(self, name: str) -> str:
        """The path."""
        return str(self._path(name))

    def _path(self, name: str) -> Path:
        return self._root.joinpath(*parts_of(name))

    def _make_ready(self) -> None:
        """Make the folders, once. If they are missing later, the disk is missing."""
        if self._ready:
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*self._top, _INCOMING):
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(self._root / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_folder(self._root)
        self._ready = True

    def _move_in(self, file: Arriving, target: Path) -> None:
        with self._locked(fcntl.LOCK_SH):
            _make_folder(target.parent)
            try:
                os.utime(target)
            except FileNotFoundError:
                file.path.rename(target)
            # Also for a file that was there: the process that placed it may have been killed before this step.
            sync_folder(target.parent)

    def _open(self, parts: Sequence[str]) -> IO[bytes]:
        with self._innermost(parts) as (folder, name):
            return _regular(os.open(name, _READ, dir_fd=folder))

    def _use(self, path: Path) -> bool:
        with self._locked(fcntl.LOCK_SH):
            try:
                os.utime(path, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def _replace(self, target: Path, contents: Mapping[str, bytes | Path]) -> None:
        with self._unfinished() as folder:
            for name, content in contents.items():
                write_durably(os.open(folder / name, _CREATE, 0o600), content)
            sync_folder(folder)
            with self._unfinished() as former:
                # Exclusive, because for a moment there is nothing in this place.
                with self._locked(fcntl.LOCK_EX):
                    _make_folder(target.parent)
                    with suppress(FileNotFoundError):
                        target.rename(former)
                    folder.rename(target)
                    os.utime(target)
                sync_folder(target.parent)

    def _sweep(self, folder: Path, older_than: timedelta) -> int:
        """Sweep the entries of a folder. They are moved away first, so that nobody finds half of one."""
        oldest = time.time() - older_than.total_seconds()
        removed = 0
        for path in _inside(folder):
            if not _unused_since(oldest, path):
                continue
            with self._unfinished() as removing:
                with self._locked(fcntl.LOCK_EX):
                    # Checked again: it may have been used since.
                    if _unused_since(oldest, path):
                        path.rename(removing / path.name)
                removed += sum(map(remove, _inside(removing)))
        # A process that makes a file here makes the folder under the same lock.
        with self._locked(fcntl.LOCK_EX), suppress(OSError):
            folder.rmdir()
        return removed

    @contextmanager
    def _innermost(self, parts: Sequence[str], *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Under the lock: a folder that is replaced is not there for a moment."""
        if make:
            self._make_ready()
        with self._locked(fcntl.LOCK_SH), super()._innermost(parts, make=make) as found:
            yield found

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold the lock for a moment.

        The lock file was made with the first file. If it is missing, the whole storage is missing, and not one file.
        """
        try:
            descriptor = os.open(self._root / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from None
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _unfinished(self) -> Iterator[Path]:
        """A locked folder in ``incoming``. It is removed at the end, unless it was moved."""
        folder = self._incoming / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                remove(folder)


def _read(descriptor: int, most: int) -> bytes:
    """At most so many bytes of a regular file; -1: all of it. Closes the descriptor."""
    with _regular(descriptor) as file:
        return file.read(most)


def _regular(descriptor: int) -> IO[bytes]:
    """The file of a descriptor. Closes the descriptor of anything but a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileUnusable
    return os.fdopen(descriptor, "rb")


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await on_disk(file.read, SMALL_PIECE):
        yield piece


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    # Also for a folder that was there: the process that made it may not have synced it yet.
    sync_folder(folder.parent)


def _unused_since(oldest: float, path: Path) -> bool:
    try:
        return path.lstat().st_mtime <= oldest
    except FileNotFoundError:
        return False


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
