"""Files in a folder.

::

    <root>/uploads/<first two of the sha256>/<sha256>
    <root>/results/<job_id>/<attempt>/<name>
    <root>/incoming/                            files that are arriving; files that a crash left here are swept
    <root>/.lock                                shared by all who use a file, exclusive for the one who removes files

An upload was last used at its time of modification, the outputs of a job at the time of modification of their folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.contracts.files import FileMissing, Stored

from .arriving import Arriving, arrived, on_disk, remove, sweep_arriving, sync_folder
from .names import RESULTS, UPLOADS, is_plain, place_in, require_outputs, upload_name

_INCOMING: Final = "incoming"
_LOCK: Final = ".lock"


class FolderFiles:
    """Keeps files below ``root``, for the processes of one machine. Only our user may read them.

    A file is there whole or not at all, and so are the outputs of a job. A complete upload may stay even if its last
    step was cancelled, because another request may rely on the same file by then. The sweep removes it later.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._incoming = self._root / _INCOMING
        self._ready = False

    async def open(self) -> None:
        """Do nothing: many processes keep no files. The first file makes the folders."""

    async def close(self) -> None:
        """Do nothing."""

    async def keep(self, content: AsyncIterator[bytes], limit: int) -> Stored:
        """Keep an upload. The same content is kept once, and counts as used now."""
        await on_disk(self._make_ready)
        async with arrived(self._incoming, content, limit) as file:
            await on_disk(file.sync)
            await on_disk(self._place_upload, file)
            return file.stored

    @asynccontextmanager
    async def local_copy(self, sha256: str) -> AsyncIterator[Path]:
        """The file itself. It counts as used at the beginning and at the end: sweep only what is older than a job."""
        path = self._root / upload_name(sha256)
        if not await on_disk(self._use, path):
            raise FileMissing
        try:
            yield path
        finally:
            await on_disk(self._use, path)

    async def write(self, place: str, outputs: Mapping[str, bytes]) -> str:
        """Keep output files. They replace the files that were in this place."""
        require_outputs(place, list(outputs))
        target = self._root / RESULTS / place
        await on_disk(self._make_ready)
        await on_disk(self._write, target, outputs)
        return str(target)

    async def read(self, output_path: str, name: str) -> bytes:
        """One output file."""
        path = self._output(output_path)
        if not is_plain(name):
            raise FileMissing
        return await on_disk(self._read, path / name)

    async def touch(self, sha256: str | None = None, output_path: str | None = None) -> bool:
        """Whether both exist. They count as used now."""
        try:
            paths = [self._root / upload_name(sha256)] if sha256 is not None else []
            paths += [self._output(output_path)] if output_path is not None else []
        except FileMissing:
            return False
        return all([await on_disk(self._use, path) for path in paths])

    async def sweep(self, older_than: timedelta) -> int:
        """Remove old files. A file that is used meanwhile stays."""
        if not self._ready and not await on_disk(self._incoming.is_dir):  # no file was ever kept here
            return 0
        removed = await on_disk(sweep_arriving, self._incoming, older_than)
        # One call for each folder, so that a worker that stops does not wait for all of them.
        for kept in (UPLOADS, RESULTS):
            for folder in await on_disk(_inside, self._root / kept):
                removed += await on_disk(self._sweep, folder, older_than)
        return removed

    def _make_ready(self) -> None:
        """Make the folders, once. If they are missing later, the disk is missing."""
        if self._ready:
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (UPLOADS, RESULTS, _INCOMING):
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(self._root / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_folder(self._root)
        self._ready = True

    def _place_upload(self, file: Arriving) -> None:
        target = self._root / upload_name(file.stored.sha256)
        with self._locked(fcntl.LOCK_SH):
            _make_folder(target.parent)
            try:
                os.utime(target)
            except FileNotFoundError:
                file.path.rename(target)
            # Also for a file that was there: the process that placed it may have been killed before this step.
            sync_folder(target.parent)

    def _use(self, path: Path) -> bool:
        with self._locked(fcntl.LOCK_SH):
            try:
                os.utime(path, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def _write(self, target: Path, outputs: Mapping[str, bytes]) -> None:
        with self._unfinished() as folder:
            for name, content in outputs.items():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(folder / name, flags, 0o600), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
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

    def _read(self, path: Path) -> bytes:
        try:
            with self._locked(fcntl.LOCK_SH):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise FileMissing from None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def _sweep(self, folder: Path, older_than: timedelta) -> int:
        """Sweep a folder of uploads or of a job's attempts. Files are moved away first, so that nobody finds half."""
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

    def _output(self, output_path: str) -> Path:
        home = self._root / RESULTS
        return home / place_in(output_path, str(home))

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
