"""The port of the engines that read: one method for a page, one for a chunk of sound.

Engines run in the child process. They raise :class:`~holdfast.features.documents.failures.DocumentFailure` with a code
of the table. Any other exception is unexpected.
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
    """The result of a page engine: the text in reading order, and details.

    ``rotation`` is by how many degrees, clockwise, the page was rotated before it was read. An engine without
    confidence or lines leaves them out.
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
        """The text of a page. ``scale`` is the number of pixels per point; boxes are returned in points."""
        ...


class SpeechEngine(Protocol):
    """Transcribes speech."""

    name: str
    model: str

    def transcribe(self, sound: np.ndarray, *, language: str | None) -> tuple[str | None, tuple[Segment, ...]]:
        """The language and the segments of mono sound at 16 kHz, float32 in [-1, 1]; times start at 0."""
        ...
