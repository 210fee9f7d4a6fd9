"""Names in the storage of files. They are plain, so that no name leads out of the storage."""

from __future__ import annotations

import re
from typing import Final

from holdfast.contracts.files import FileMissing

UPLOADS: Final = "uploads"
RESULTS: Final = "results"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PARTS_OF_A_PLACE: Final = 2


def upload_name(sha256: str) -> str:
    """The path of an upload in the storage. Raises FileMissing if the text is no SHA-256 in hex."""
    if not _DIGEST.fullmatch(sha256):
        raise FileMissing
    return f"{UPLOADS}/{sha256[:2]}/{sha256}"


def is_plain(name: str) -> bool:
    """Whether this is one plain name: no slash, no dot at the beginning, no unusual characters."""
    return _PLAIN.fullmatch(name) is not None


def is_place(place: str) -> bool:
    """Whether this is ``<job_id>/<attempt>``."""
    parts = place.split("/")
    return len(parts) == _PARTS_OF_A_PLACE and all(map(is_plain, parts))


def require_outputs(place: str, names: list[str]) -> None:
    """Raise ValueError for names that could not be read again. The names are our own, so this is a bug."""
    if not is_place(place) or not all(map(is_plain, names)):
        message = "A place is <job_id>/<attempt>, and output files have plain names."
        raise ValueError(message)


def place_in(output_path: str, home: str) -> str:
    """The place of an ``output_path`` below ``home``. Any other path raises FileMissing."""
    place = output_path.removeprefix(f"{home}/")
    if not output_path.startswith(f"{home}/") or not is_place(place):
        raise FileMissing
    return place
