"""Files that come with a request or are kept for a job: what a store of blobs reports about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import HoldfastError

HEAD: Final = 4096
"""How many bytes of a file's beginning are reported: enough for every format's signature."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An upload that is kept: its name is the SHA-256 of its content, in hex. ``head`` are its first bytes."""

    sha256: str
    size: int
    head: bytes


class UploadTooLarge(HoldfastError):
    """The upload is larger than it may be. Nothing of it is kept."""


class FileMissing(HoldfastError):
    """There is no such file here, or not any more."""


class FileUnusable(FileMissing):
    """There is something of this name, and it is no file that can be read."""


class FileTooLong(FileUnusable):
    """The file is longer than the reader allows."""


class FilesUnavailable(HoldfastError):
    """The storage of files does not answer, or refuses. It may pass."""
