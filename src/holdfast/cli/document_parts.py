"""The documents workload, for commands that need it."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.wiring import System
from holdfast.wiring.documents import NEEDED, DocumentSystem

from .failures import Stop

INSTALL = "pip install 'holdfast[documents]'"


def document_parts(system: System) -> DocumentSystem:
    """The documents workload of this system. Raises :class:`Stop` with what is missing where there is none."""
    if system.documents is None:
        raise Stop(why_no_documents())
    return system.documents


def require_documents() -> None:
    """Raise :class:`Stop` where the libraries that read files are not installed."""
    if missing_libraries():
        raise Stop(why_no_documents())


def missing_libraries() -> list[str]:
    """What reading files needs and is not installed here."""
    return [name for name in NEEDED if find_spec(name) is None]


def why_no_documents() -> str:
    """What keeps the documents workload from running here, and what to do about it."""
    missing = ", ".join(missing_libraries())
    return f"Documents are not set up here: install what they need with {INSTALL} (not there: {missing})."
