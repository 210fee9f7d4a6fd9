"""The engines that read files. The worker knows them by this table; only the child process loads them.

A new engine is a module in ``child/`` with its classes (see :mod:`.child.port`), its settings in ``settings.py``, and
its row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

EngineOptions = Mapping[str, Any]
"""The settings of an engine as JSON, by the names that its classes use."""

Engine = Literal["local", "gemini"]


class EngineName(StrEnum):
    """The engines that read files."""

    LOCAL = "local"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """What an engine is and needs.

    ``pages`` and ``speech`` are its classes, as ``module:class`` in ``child/``. ``options`` are its options and the
    settings that they come from; ``pages_by`` and ``speech_by`` name the option that decides the result. ``key`` is the
    environment variable of its key, and in lower case the setting. ``model`` is the class that asks a model on the
    network, in a process of its own. ``folder`` is the option that names a folder which is read. ``library`` is what
    must be installed besides the libraries of ``local``.
    """

    pages: str
    speech: str
    options: Mapping[str, str]
    pages_by: str | None
    speech_by: str | None
    key: str | None = None
    model: str | None = None
    folder: str | None = None
    library: str | None = None


ENGINES: Final[Mapping[str, EngineKind]] = {
    "local": EngineKind(
        pages="ocr:LocalPages",
        speech="speech:LocalSpeech",
        options={"model_dir": "whisper_model_dir"},
        pages_by=None,
        speech_by="model_dir",
        folder="model_dir",
    ),
    "gemini": EngineKind(
        pages="gemini:GeminiPages",
        speech="gemini:GeminiSpeech",
        options={"model": "gemini_model", "base_url": "gemini_base_url"},
        pages_by="model",
        speech_by="model",
        key="GEMINI_API_KEY",
        model="gemini_model:GeminiModel",
        library="google.genai",
    ),
}


def engine_options(settings: Any) -> dict[str, EngineOptions]:  # noqa: ANN401 - of every class that has the settings
    """The options of all engines, as configured."""
    return {
        name: {option: _as_json(getattr(settings, setting)) for option, setting in kind.options.items()}
        for name, kind in ENGINES.items()
    }


def engine_keys(settings: Any) -> dict[str, str]:  # noqa: ANN401 - as above
    """The keys of the engines that have one, by their environment variables."""
    keys = {kind.key: getattr(settings, kind.key.lower()) for kind in ENGINES.values() if kind.key is not None}
    return {name: key.get_secret_value() for name, key in keys.items() if key is not None}


def _as_json(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
