"""The documents feature, for its commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.feature import install_command, missing_libraries
from holdfast.features.documents.feature import LIBRARIES, DocumentService, DocumentsFeature
from holdfast.terminal import Stop, open_feature


@asynccontextmanager
async def opened_documents(data: Path | None) -> AsyncIterator[DocumentService]:
    """Documents over a ledger that is there. Where they are not set up, the command ends with the reason."""
    async with open_feature(DocumentsFeature.name, data) as service:
        yield service


def require_documents() -> None:
    """Raise :class:`Stop` if the libraries that read files are not installed."""
    missing = missing_libraries(LIBRARIES)
    if missing:
        why = f"{', '.join(missing)} not installed. Install it: {install_command(missing)}"
        message = f"Documents are not set up here: {why}"
        raise Stop(message)
