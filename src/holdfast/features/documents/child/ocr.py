"""OCR on this machine: rapidocr with the models in its own wheel. Nothing is ever fetched.

The models are the small ones of PP-OCRv6. One model reads English and Portuguese, accents included, so the language of
a page need not be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Self

from .layout import Box, composed, reading_order
from .ocr_models import Corners, FoundLine, LineFinder, LineReader
from .port import Ask, Reading
from .protocol import Line, Spec

if TYPE_CHECKING:
    from PIL import Image

ENGINE: Final = "local"
MODEL: Final = "pp-ocrv6-small"

# Lines below this score are stains and ornaments.
_WORST_LINE: Final = 0.5
# A page below this score may be rotated. Upright pages, poor scans too, have more than 0.95.
_WORST_PAGE: Final = 0.85
# A piece that is taller than wide by this factor is a line that runs down the page.
_TALL: Final = 1.5
# So many of the longest lines show whether a page is upright.
_SAMPLE: Final = 3


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line as the model returned it: its corners, clockwise from the top left."""

    corners: Corners
    text: str
    score: float


class LocalPages:
    """Reads pages with the models in the wheel, on ``threads`` threads.

    A page that is upside down or sideways has a low score; it is rotated and read again. The language is not needed.
    Raises DocumentFailure MODEL_FILES_DAMAGED when the models cannot be loaded.
    """

    name = ENGINE
    model = MODEL

    def __init__(self, threads: int) -> None:
        self._finder, self._reader = LineFinder(threads), LineReader(threads)

    @classmethod
    def of(cls, spec: Spec, ask: Ask) -> Self:
        """The engine for this attempt."""
        del ask
        return cls(spec.threads)

    @staticmethod
    def model_of(spec: Spec) -> str:
        """Always the same model."""
        del spec
        return MODEL

    def read(self, image: Image.Image, *, scale: float, language: str | None) -> Reading:  # noqa: ARG002 - of the port
        """The text of a page in reading order, and its lines with their places on the page as it was given."""
        rotation, pieces = self._best(image)
        pieces = [piece for piece in pieces if piece.score >= _WORST_LINE and piece.text.strip()]
        order = reading_order(_upright(pieces))
        texts = [piece.text.strip() for piece in pieces]
        lines = tuple(
            Line(
                text=texts[index],
                box=_given(_extent(pieces[index]), rotation, image.size, scale),
                confidence=round(pieces[index].score, 4),
            )
            for block in order
            for row in block
            for index in row
        )
        confidence = round(_mean_score(pieces), 4) if pieces else None
        return Reading(text=composed(texts, order), confidence=confidence, rotation=rotation, lines=lines)

    def _best(self, image: Image.Image) -> tuple[int, list[_Piece]]:
        """The rotation with the best score, and the pieces of the page in that rotation.

        A few long lines show whether a page is upright: only if they do not, other rotations are tried.
        """
        found = {0: self._sheet(image, 0)}
        if not found[0].lines:
            return 0, []
        if not found[0].is_upright():
            for rotation in (90, 270) if found[0].lies_sideways() else (180,):
                found[rotation] = self._sheet(image, rotation)
                if found[rotation].is_upright():
                    return rotation, found[rotation].pieces()
            rotation = max(found, key=lambda turned: _mean_score(found[turned].pieces()))
            return rotation, found[rotation].pieces()
        return 0, found[0].pieces()

    def _sheet(self, image: Image.Image, rotation: int) -> _Sheet:
        import numpy as np  # noqa: PLC0415 - heavy: only when a page needs it

        turned = image.rotate(-rotation, expand=True) if rotation else image
        # The models expect the colours in the order blue, green, red.
        pixels = np.ascontiguousarray(np.asarray(turned.convert("RGB"))[:, :, ::-1])
        return _Sheet(self._finder.lines(pixels), self._reader)


class _Sheet:
    """A page in one rotation. Its lines, the longest first, are read when they are needed."""

    def __init__(self, lines: list[FoundLine], reader: LineReader) -> None:
        self.lines = sorted(lines, key=lambda line: -line.length)
        self._reader = reader
        self._read: list[_Piece] = []

    def is_upright(self) -> bool:
        """Whether the longest lines are level, and can be read."""
        sample = self._first(_SAMPLE)
        return bool(sample) and _mean_score(sample) >= _WORST_PAGE and not _lies_sideways(sample)

    def lies_sideways(self) -> bool:
        """Whether the longest lines run down the page."""
        return _lies_sideways(self._first(_SAMPLE))

    def pieces(self) -> list[_Piece]:
        """All lines with something to read, from top to bottom."""
        read = [piece for piece in self._first(len(self.lines)) if piece.text.strip()]
        return sorted(read, key=lambda piece: (piece.corners[0][1], piece.corners[0][0]))

    def _first(self, count: int) -> list[_Piece]:
        missing = self.lines[len(self._read) : count]
        for line, (text, score) in zip(missing, self._reader.read(missing), strict=True):
            self._read.append(_Piece(line.corners, text, score))
        return self._read[:count]


def _mean_score(pieces: list[_Piece]) -> float:
    """How sure the model is, weighted by characters."""
    letters = sum(len(piece.text) for piece in pieces)
    return sum(piece.score * len(piece.text) for piece in pieces) / letters if letters else 0.0


def _lies_sideways(pieces: list[_Piece]) -> bool:
    """Whether most of the text runs down the page. Pieces of one or two letters are not counted."""
    tall = level = 0
    for piece in pieces:
        left, top, right, bottom = _extent(piece)
        letters = len(piece.text.strip())
        if letters > 2:  # noqa: PLR2004 - see the docstring
            if bottom - top > _TALL * (right - left):
                tall += letters
            else:
                level += letters
    return tall > level


def _extent(piece: _Piece) -> Box:
    across, down = [x for x, _ in piece.corners], [y for _, y in piece.corners]
    return min(across), min(down), max(across), max(down)


def _upright(pieces: list[_Piece]) -> list[Box]:
    """The boxes of the pieces after a small skew of the page is removed."""
    if not pieces:
        return []
    angles = []
    for piece in pieces:
        (ax, ay), (bx, by) = piece.corners[0], piece.corners[1]
        angles.append((math.atan2(by - ay, bx - ax), math.hypot(bx - ax, by - ay)))
    # Long lines show the angle best.
    longest = sorted(angles, key=lambda angle: -angle[1])[: max(1, len(angles) // 2)]
    askew = median(angle for angle, _ in longest)
    cosine, sine = math.cos(-askew), math.sin(-askew)
    boxes = []
    for piece in pieces:
        x = sum(corner[0] for corner in piece.corners) / 4
        y = sum(corner[1] for corner in piece.corners) / 4
        a, b, _, d = piece.corners
        width, height = math.dist(a, b), math.dist(a, d)
        cx, cy = x * cosine - y * sine, x * sine + y * cosine
        boxes.append((cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2))
    return boxes


def _given(box: Box, rotation: int, size: tuple[int, int], scale: float) -> Box:
    """A box on the rotated image, converted to points on the page as it was given."""
    left, top, right, bottom = box
    width, height = size
    if rotation == 90:  # noqa: PLR2004 - degrees
        left, top, right, bottom = top, height - right, bottom, height - left
    elif rotation == 180:  # noqa: PLR2004 - degrees
        left, top, right, bottom = width - right, height - bottom, width - left, height - top
    elif rotation == 270:  # noqa: PLR2004 - degrees
        left, top, right, bottom = width - bottom, left, width - top, right
    return round(left / scale, 1), round(top / scale, 1), round(right / scale, 1), round(bottom / scale, 1)
