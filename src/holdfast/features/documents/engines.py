"""The engines that read files. The worker knows them by this table; only the child process loads them.

A new engine is a module in ``child/`` with its classes (see :mod:`.child.port`), its settings in ``settings.py``, and
its row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

EngineOptions = Mapping[str, str | float | None]
"""The settings of an engine, by the names that its classes use."""

Engine = Literal["local", "gemini"]


class EngineName(StrEnum):
    """The engines that read files."""

    LOCAL = "local"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Part:
    """A class of an engine, as ``module:class`` in ``child/``. ``model`` names the option that decides its results."""

    place: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """What an engine needs.

    ``options`` are its options and the settings that they come from. ``key`` is the environment variable of its key,
    and in lower case the setting. ``library`` is what must be installed besides the libraries of ``local``.
    """

    pages: Part
    speech: Part
    options: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    library: str | None = None


ENGINES: Final[Mapping[str, EngineKind]] = {
    "local": EngineKind(
        pages=Part("ocr:LocalPages"),
        speech=Part("speech:LocalSpeech", model="model_dir"),
        options={"model_dir": "whisper_model_dir"},
    ),
    "gemini": EngineKind(
        pages=Part("gemini:GeminiPages", model="model"),
        speech=Part("gemini:GeminiSpeech", model="model"),
        options={"model": "gemini_model", "base_url": "gemini_base_url", "timeout": "gemini_timeout_seconds"},
        key="GEMINI_API_KEY",
        library="google.genai",
    ),
}


def engine_options(settings: Any) -> dict[str, EngineOptions]:  # noqa: ANN401 - of every class that has the settings
    """The options of all engines, as configured."""
    return {
        name: {option: _plain(getattr(settings, setting)) for option, setting in kind.options.items()}
        for name, kind in ENGINES.items()
    }


def engine_keys(settings: Any) -> dict[str, str]:  # noqa: ANN401 - as above
    """The keys of the engines that have one, by their environment variables."""
    keys = {kind.key: getattr(settings, kind.key.lower()) for kind in ENGINES.values() if kind.key is not None}
    return {name: key.get_secret_value() for name, key in keys.items() if key is not None}


def _plain(value: object) -> str | float | None:
    return value if value is None or isinstance(value, int | float) else str(value)
