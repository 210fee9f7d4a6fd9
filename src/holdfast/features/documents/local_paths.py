"""Files of this machine, inside the folders that may be read and nowhere else.

A path is opened name by name, each name in the folder that was opened before it. No symbolic link is followed. So no
one can replace a checked file by a link: the file that was checked is the file that is open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from holdfast.feature import HEAD

from .failures import Code, DocumentFailure

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking: opening a named pipe would block for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_PIECE: Final = 1024 * 1024


class Copied(NamedTuple):
    """A copied file: the SHA-256 of its content in hex, its size, and its first bytes."""

    sha256: str
    size: int
    head: bytes


class LocalPaths:
    """Finds files in ``roots``. A relative path is looked for in each root, in order; the first root that has it wins.

    ``own`` are the roots of single tenants: no other tenant, and no job without a tenant, reads files there.

    A root itself may be a symbolic link: the operator configured it. Below a root, links are refused.

    All methods block, and raise DocumentFailure: FILE_NOT_FOUND, FILE_UNREADABLE (no permission, or not a regular
    file), and PATH_NOT_ALLOWED (outside the roots, ``..``, a link, or no roots at all).
    """

    def __init__(self, roots: Sequence[Path], own: Mapping[str, Sequence[Path]] | None = None) -> None:
        self._roots = tuple(root.absolute() for root in roots)
        self._own = own or {}

    def of(self, company_id: str | None) -> LocalPaths:
        """The paths that a tenant may read: its own roots first, then those of all."""
        return LocalPaths((*self._own.get(company_id or "", ()), *self._roots))

    def resolve(self, local_path: str) -> Path:
        """The path of the file. It could be opened just now. To read exactly this file, use :meth:`opened`."""
        root, names, descriptor = self._find(local_path)
        os.close(descriptor)
        return root.joinpath(*names)

    @contextmanager
    def opened(self, local_path: str) -> Iterator[BinaryIO]:
        """The file that was checked, open for reading."""
        _, _, descriptor = self._find(local_path)
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def copy_to(self, local_path: str, to: Path, limit: int) -> Copied:
        """Copy the file to ``to``, which only our user may read. More than ``limit`` bytes raise TOO_LARGE.

        A copy that cannot be written raises STORAGE_UNAVAILABLE. When this raises, there is no file at ``to``.
        """
        with self.opened(local_path) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise _too_large(limit)
            try:
                return _copy(file, local_path, to, limit)
            except BaseException:
                with suppress(OSError):
                    to.unlink()
                raise

    def _find(self, local_path: str) -> tuple[Path, list[str], int]:
        """The root that has the file, the names from the root to the file, and its descriptor."""
        places = self._places(local_path)
        for root, names in places:
            try:
                return root, names, _walk(root, names, local_path)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise _unreadable(local_path, errno.errorcode.get(error.errno or 0, "EIO")) from None
        raise DocumentFailure(Code.FILE_NOT_FOUND, f"File not found: {local_path}")

    def _places(self, local_path: str) -> list[tuple[Path, list[str]]]:
        """Where the file may be. Only the path decides, so that the answer shows nothing about files outside."""
        if not self._roots:
            raise DocumentFailure(Code.PATH_NOT_ALLOWED, detail="No folders are configured that may be read.")
        names = [name for name in local_path.split("/") if name not in {"", "."}]
        if ".." in names or "\x00" in local_path or not _is_encodable(local_path):
            raise DocumentFailure(Code.PATH_NOT_ALLOWED, detail="The path is not plain: it has .. or NUL in it.")
        if not local_path.startswith("/"):
            return [(root, names) for root in self._roots]
        places = []
        for root in self._roots:
            # The root as it is configured, and with its links resolved.
            for spelling in (root, Path(os.path.realpath(root))):
                above = list(spelling.parts[1:])
                if names[: len(above)] == above:
                    places.append((root, names[len(above) :]))
                    break
        if not places:
            raise DocumentFailure(Code.PATH_NOT_ALLOWED)
        return places


def _walk(root: Path, names: Sequence[str], local_path: str) -> int:
    """Open the file at the names. Raises OSError if it cannot be opened, DocumentFailure if it must not be."""
    if not names:
        raise _unreadable(local_path, "it is a folder")
    folder = os.open(root, _FOLDER)
    try:
        for name in names[:-1]:
            _require_no_link(folder, name)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return _open_file(folder, names[-1], local_path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            # It became a link after the check.
            raise _link_refused() from None
        raise
    finally:
        os.close(folder)


def _open_file(folder: int, name: str, local_path: str) -> int:
    # Checked before opening, because opening a device can have effects. Checked again, because the file may change.
    _require_regular(_require_no_link(folder, name), local_path)
    descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        _require_regular(os.fstat(descriptor).st_mode, local_path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_no_link(folder: int, name: str) -> int:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise _link_refused()
    return mode


def _require_regular(mode: int, local_path: str) -> None:
    if stat.S_ISDIR(mode):
        raise _unreadable(local_path, "it is a folder")
    if not stat.S_ISREG(mode):
        raise _unreadable(local_path, "it is not a regular file")


def _copy(file: BinaryIO, local_path: str, to: Path, limit: int) -> Copied:
    digest = sha256()
    size = 0
    head = b""
    with _writing(), os.fdopen(os.open(to, _CREATE, 0o600), "wb") as copy:
        while piece := _read(file, local_path):
            size += len(piece)
            if size > limit:
                # It has grown since the check.
                raise _too_large(limit)
            digest.update(piece)
            head += piece[: HEAD - len(head)]
            copy.write(piece)
    return Copied(digest.hexdigest(), size, head)


def _read(file: BinaryIO, local_path: str) -> bytes:
    try:
        return file.read(_PIECE)
    except OSError as error:
        raise _unreadable(local_path, errno.errorcode.get(error.errno or 0, "EIO")) from None


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "EIO")
        raise DocumentFailure(Code.STORAGE_UNAVAILABLE, detail=f"The file cannot be copied ({reason}).") from None


def _is_encodable(local_path: str) -> bool:
    try:
        os.fsencode(local_path)
    except UnicodeEncodeError:
        return False
    return True


def _link_refused() -> DocumentFailure:
    return DocumentFailure(Code.PATH_NOT_ALLOWED, detail="There is a symbolic link in the path.")


def _unreadable(local_path: str, why: str) -> DocumentFailure:
    return DocumentFailure(Code.FILE_UNREADABLE, f"File cannot be read: {local_path} ({why})")


def _too_large(limit: int) -> DocumentFailure:
    return DocumentFailure(Code.TOO_LARGE, f"The file is larger than {limit} bytes")
