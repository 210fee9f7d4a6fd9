"""The port of the engines that read: a class for pages, and a class for sound.

Engines run in the child process. They raise :class:`~holdfast.features.documents.failures.DocumentFailure` with a code
of the table. Any other exception is unexpected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from holdfast.features.documents.engines import ENGINES

from .protocol import Line, Question, Segment, Spec

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


Ask = Callable[[Question], str]
"""Sends a question to the model of the engine, and returns the text of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of a page engine: the text in reading order, and details.

    ``rotation`` is by how many degrees, clockwise, the page was rotated before it was read. An engine without
    confidence or lines leaves them out.
    """

    text: str
    confidence: float | None = None
    rotation: int = 0
    lines: tuple[Line, ...] = ()


class Engine(Protocol):
    """A class that can be imported at no cost. Only an engine that is made loads heavy libraries and models."""

    name: str
    model: str

    @classmethod
    def of(cls, spec: Spec, ask: Ask) -> Self:
        """The engine for this attempt. A model on the network is reached with ``ask``, and in no other way."""
        ...

    @staticmethod
    def model_of(spec: Spec) -> str:
        """The model's name in results."""
        ...


class PageEngine(Engine, Protocol):
    """Reads the image of a page."""

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:
        """The text of a page. ``scale`` is the number of pixels per point; boxes are returned in points."""
        ...


class SpeechEngine(Engine, Protocol):
    """Transcribes speech."""

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language and the segments of mono sound at 16 kHz, float32 in [-1, 1]; times start at 0."""
        ...


class Model(Protocol):
    """A model on the network, in the process of the caller. Also this class can be imported at no cost."""

    @classmethod
    def of(cls, spec: Spec, key: str) -> Self:
        """The model for this attempt."""
        ...

    @staticmethod
    def port_of(spec: Spec) -> int:
        """The one TCP port that the model is reached at."""
        ...

    def ask(self, question: Question) -> str:
        """The text of the answer."""
        ...


def engine_class(spec: Spec) -> Any:  # noqa: ANN401 - a class of a PageEngine or of a SpeechEngine
    """The class of the engine that reads this attempt's file."""
    kind = ENGINES[spec.engine]
    return _imported(kind.pages if spec.input_type == "PDF" else kind.speech)


def model_class(spec: Spec) -> type[Model]:
    """The class of the model that the engine asks."""
    return cast("type[Model]", _imported(ENGINES[spec.engine].model or ""))


def files_of(spec: Spec) -> list[str]:
    """The files that the engine reads: the document, and a model in a folder."""
    option = ENGINES[spec.engine].folder
    folder = spec.options.get(option) if option is not None else None
    if folder is None:
        return [spec.path]
    found = [spec.path, str(folder)]
    with suppress(OSError), os.scandir(folder) as entries:
        # Each file by itself, too: in some folders of models they are links to other places.
        found += [entry.path for entry in entries]
    return found


def _imported(named: str) -> Any:  # noqa: ANN401 - any class
    module, _, name = named.partition(":")
    return getattr(import_module(f".{module}", __package__), name)
