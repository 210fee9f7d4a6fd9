"""The port of the engines that read: a class for pages, and a class for sound.

Engines run in the child process. They raise :class:`~holdfast.features.documents.failures.DocumentFailure` with a code
of the table. Any other exception is unexpected.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self

from holdfast.features.documents.engines import ENGINES

from .protocol import Line, Segment, Spec

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


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
    def of(cls, spec: Spec, key: str) -> Self:
        """The engine for this attempt. ``key`` is empty for an engine without a key."""
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


def engine_class(spec: Spec) -> Any:  # noqa: ANN401 - a class of a PageEngine or of a SpeechEngine
    """The class of the engine that reads this attempt's file."""
    kind = ENGINES[spec.engine]
    module, _, name = (kind.pages if spec.input_type == "PDF" else kind.speech).partition(":")
    return getattr(import_module(f".{module}", __package__), name)
