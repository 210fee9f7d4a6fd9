"""Files that come with a request: what the admission of a workload reports about them to the HTTP route."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import HoldfastError


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


class FilesUnavailable(HoldfastError):
    """The storage of files does not answer, or refuses. It may pass."""
