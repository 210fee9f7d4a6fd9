"""The text that a page of a PDF already holds, in reading order, with the places of its lines."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pypdfium2
import pypdfium2.raw as pdfium

from .layout import Box, composed, reading_order
from .legibility import Legibility, legibility
from .protocol import Line

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

# A gap of this many letter heights on one line separates two columns or two cells.
_GAP: Final = 1.2


@dataclass(frozen=True, slots=True)
class TextLayer:
    """The text layer of a page. ``letters`` counts letters and digits."""

    text: str
    lines: tuple[Line, ...]
    letters: int
    legibility: Legibility


@dataclass(frozen=True, slots=True)
class _Letter:
    """A sign on the page as it is shown; spaces have no box. ``ends``: pdfium ends a line here.

    ``mapped``: the font names the character. Otherwise pdfium uses the number in the font as the character.
    """

    sign: str
    box: Box | None
    ends: bool = False
    mapped: bool = True


@dataclass(frozen=True, slots=True)
class _Run:
    """Letters that follow each other on one line. ``box`` is turned so that the text runs to the right."""

    text: str
    box: Box


def text_layer(page: PdfPage) -> TextLayer:
    """The text layer of a page. It has no letters if the page has none."""
    letters = _letters(page)
    quarters = _quarters(letters)
    runs = [run for run in _runs(letters, quarters) if run.text.strip()]
    signs = [sign for run in runs for sign in run.text if not sign.isspace()]
    order = reading_order([run.box for run in runs])
    texts = [" ".join(run.text.split()) for run in runs]
    lines = tuple(
        Line(text=texts[index], box=_rounded(_turned(runs[index].box, -quarters)))
        for block in order
        for row in block
        for index in row
    )
    return TextLayer(
        text=composed(texts, order),
        lines=lines,
        letters=sum(sign.isalnum() for sign in signs),
        legibility=legibility("\n".join(texts), sum(not letter.mapped for letter in letters)),
    )


def _letters(page: PdfPage) -> list[_Letter]:
    """The letters of a page in the order of the file; none if pdfium cannot read them."""
    try:
        textpage = page.get_textpage()
    except pypdfium2.PdfiumError:
        return []
    try:
        place = _Place(page)
        rect = pdfium.FS_RECTF()
        where = ctypes.byref(rect)
        letters = []
        for index in range(textpage.count_chars()):
            sign = chr(pdfium.FPDFText_GetUnicode(textpage, index))
            if sign in "\r\n":
                letters.append(_Letter(sign, None, ends=True))
            elif sign.isspace() or not pdfium.FPDFText_GetLooseCharBox(textpage, index, where):
                letters.append(_Letter(sign, None))
            else:
                box = place.shown(rect.left, rect.top, rect.right, rect.bottom)
                mapped = pdfium.FPDFText_HasUnicodeMapError(textpage, index) != 1
                # pdfium returns character 2 for a hyphen at the end of a line.
                letters.append(_Letter("-" if sign == "\x02" else sign, box, mapped=mapped))
        return letters
    finally:
        textpage.close()


def _quarters(letters: list[_Letter]) -> int:
    """The direction of most of the text: 0 to the right, 1 down, 2 to the left, 3 up."""
    steps = [0, 0, 0, 0]
    for one, other in pairwise(letters):
        if one.box and other.box:
            across = other.box[0] + other.box[2] - one.box[0] - one.box[2]
            down = other.box[1] + other.box[3] - one.box[1] - one.box[3]
            if abs(across) >= abs(down):
                steps[0 if across >= 0 else 2] += 1
            else:
                steps[1 if down > 0 else 3] += 1
    return steps.index(max(steps))


def _runs(letters: list[_Letter], quarters: int) -> Iterator[_Run]:
    """The letters joined into runs."""
    signs: list[str] = []
    box: Box | None = None
    for letter in [*letters, _Letter("\n", None, ends=True)]:
        new = _turned(letter.box, quarters) if letter.box else None
        if box and (letter.ends or (new and _apart(box, new))):
            # A sign outside the basic plane comes as two halves.
            yield _Run("".join(signs).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), box)
            signs, box = [], None
        if new:
            box = _joined(box, new) if box else new
        if not letter.ends:
            signs.append(letter.sign)


class _Place:
    """Converts to places on the page as it is shown: cut to its box, and rotated by its /Rotate."""

    def __init__(self, page: PdfPage) -> None:
        self._left, self._bottom, self._right, self._top = page.get_bbox()
        self._rotation = page.get_rotation()

    def shown(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Points from the top left corner. The arguments are points of the page's own space, where y grows upwards."""
        if self._rotation == 90:  # noqa: PLR2004 - degrees
            return bottom - self._bottom, left - self._left, top - self._bottom, right - self._left
        if self._rotation == 180:  # noqa: PLR2004 - degrees
            return self._right - right, bottom - self._bottom, self._right - left, top - self._bottom
        if self._rotation == 270:  # noqa: PLR2004 - degrees
            return self._top - top, self._right - right, self._top - bottom, self._right - left
        return left - self._left, self._top - top, right - self._left, self._top - bottom


def _apart(box: Box, new: Box) -> bool:
    """Whether a letter begins a new run: it is far to the right, or back to the left on another line."""
    height = max(new[3] - new[1], 1.0)
    if new[0] - box[2] > _GAP * height:
        return True
    above_or_below = new[1] > box[3] or new[3] < box[1]
    return above_or_below and new[0] < box[2] - height


def _joined(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _turned(box: Box, quarters: int) -> Box:
    """A box on the page turned back by ``quarters``: text in that direction then runs to the right."""
    left, top, right, bottom = box
    turns = (
        (left, top, right, bottom),
        (top, -right, bottom, -left),
        (-right, -bottom, -left, -top),
        (-bottom, left, -top, right),
    )
    return turns[quarters % 4]


def _rounded(box: Box) -> Box:
    return round(box[0], 1), round(box[1], 1), round(box[2], 1), round(box[3], 1)
