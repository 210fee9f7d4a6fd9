"""The port of the engines that read: one method for a page, one for a stretch of sound.

Engines live in the child process. What they raise is a :class:`~holdfast.workloads.documents.failures.DocumentFailure`
with a code of the table; anything else is a surprise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .protocol import Line, Segment

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a page engine found: the text in reading order, and how it came to it.

    ``rotation`` is by how many degrees, clockwise, the page was turned to be read. An engine that does not tell how
    sure it is, nor where a line stands, leaves the rest out.
    """

    text: str
    confidence: float | None = None
    rotation: int = 0
    lines: tuple[Line, ...] = ()


class PageEngine(Protocol):
    """Reads the image of a page."""

    name: str
    model: str

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:
        """The text of a page; ``scale`` is how many pixels a point has, so that boxes come out in points."""
        ...


class SpeechEngine(Protocol):
    """Writes down what is said."""

    name: str
    model: str

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language and the segments of mono sound at 16 kHz, float32 in [-1, 1]; times start at 0."""
        ...
