"""The document settings of the tour, and whether the libraries of the ``documents`` extra are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.contracts.extras import missing_libraries
from holdfast.wiring.libraries import DOCUMENTS

from .leftovers import INBOX

SHORTENED: Final[Mapping[str, int]] = {"DOCUMENT_RETRY_BASE_MS": 300}
"""Settings that make the chapters on documents quick."""


def missing() -> list[str]:
    """The missing libraries for documents."""
    return missing_libraries(DOCUMENTS)


def settings() -> dict[str, str]:
    """Settings that allow requests to name files in the inbox. The server runs in the demo's folder."""
    return {"DOCUMENT_ROOTS": INBOX, "DOCUMENT_LOCAL_PATH_OVER_HTTP": "true"}
