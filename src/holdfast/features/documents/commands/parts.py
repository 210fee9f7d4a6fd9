"""The documents workload, for commands that need it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.failures import Stop
from holdfast.contracts.extras import install_command, missing_libraries
from holdfast.features.documents.feature import DocumentSystem
from holdfast.wiring import System
from holdfast.wiring.libraries import DOCUMENTS, document_lack


def document_parts(system: System) -> DocumentSystem:
    """The documents workload of this system. Without one, raises :class:`Stop` with the missing libraries."""
    if system.documents is None:
        lack = document_lack(system.settings)
        raise Stop(_why_not(() if lack is None else lack.missing))
    return system.documents


def require_documents() -> None:
    """Raise :class:`Stop` if the libraries that read files are not installed."""
    missing = missing_libraries(DOCUMENTS)
    if missing:
        raise Stop(_why_not(missing))


def _why_not(missing: Sequence[str]) -> str:
    """Why the documents workload does not run here, and how to install it."""
    if not missing:
        return "Documents are not set up here."
    return f"Documents are not set up here: {', '.join(missing)} not installed. Install it: {install_command(missing)}"
