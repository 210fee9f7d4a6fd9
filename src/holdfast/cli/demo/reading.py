"""How the tour has documents read, and whether it can: with the libraries of the ``documents`` extra only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.contracts.extras import missing_libraries
from holdfast.wiring.libraries import DOCUMENTS

from .leftovers import INBOX

SHORTENED: Final[Mapping[str, int]] = {"DOCUMENT_RETRY_BASE_MS": 300}
"""Settings that make the chapters on documents quick."""


def missing() -> list[str]:
    """The libraries without which no documents are read."""
    return missing_libraries(DOCUMENTS)


def settings() -> dict[str, str]:
    """Requests may name files in the inbox of the demo's folder, in which the server runs."""
    return {"DOCUMENT_ROOTS": INBOX, "DOCUMENT_LOCAL_PATH_OVER_HTTP": "true"}
