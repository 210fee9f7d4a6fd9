"""The text that a page of a PDF already holds: taken out in reading order, with its lines where they stand."""

from __future__ import annotations

import ctypes
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pypdfium2.raw as pdfium

from .layout import Box, composed, reading_order
from .protocol import Line

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

# A gap of so many letter heights on one line parts two columns, or two cells.
_GAP: Final = 1.2
# So much of a text that is not characters anybody wrote: the fonts do not say what their signs mean.
_RUBBISH: Final = 0.1
_NOTHING: Final = frozenset({"Cc", "Cn", "Co", "Cs"})


@dataclass(frozen=True, slots=True)
class TextLayer:
    """What a page says by itself. ``letters`` counts letters and digits."""

    text: str
    lines: tuple[Line, ...]
    letters: int
    legible: bool
    """Whether its characters are characters."""


@dataclass(slots=True)
class _Run:
    """Letters that follow each other on one line."""

    text: str
    box: Box


def text_layer(page: PdfPage) -> TextLayer:
    """The text layer of a page; without letters where there is none."""
    runs = [run for run in _runs(page) if run.text.strip()]
    whole = "".join(run.text for run in runs)
    signs = [sign for sign in whole if not sign.isspace()]
    strange = sum(sign == "\ufffd" or unicodedata.category(sign) in _NOTHING for sign in signs)
    # Text that runs down the page is left in the order in which the file has it.
    downward = sum(len(run.text) for run in runs if _is_tall(run)) * 2 > len(whole)
    boxes = [run.box for run in runs]
    order = [[[index] for index in range(len(runs))]] if downward else reading_order(boxes)
    texts = [" ".join(run.text.split()) for run in runs]
    lines = tuple(
        Line(text=texts[index], box=_rounded(boxes[index])) for block in order for row in block for index in row
    )
    return TextLayer(
        text=composed(texts, order),
        lines=lines,
        letters=sum(sign.isalnum() for sign in signs),
        legible=strange <= _RUBBISH * len(signs),
    )


def _runs(page: PdfPage) -> list[_Run]:
    """The letters of a page, put together where they follow each other. pdfium says where lines end."""
    textpage = page.get_textpage()
    try:
        place = _Place(page)
        rect = pdfium.FS_RECTF()
        where = ctypes.byref(rect)
        runs: list[_Run] = []
        signs: list[str] = []
        box: Box | None = None

        def end() -> None:
            if box:
                text = "".join(signs).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                runs.append(_Run(text, box))
            signs.clear()

        for index in range(textpage.count_chars()):
            sign = chr(pdfium.FPDFText_GetUnicode(textpage, index))
            if sign in "\r\n":
                end()
                box = None
                continue
            if sign == "\x02":
                # What pdfium makes of a hyphen at the end of a line.
                sign = "-"
            if sign.isspace() or not pdfium.FPDFText_GetLooseCharBox(textpage, index, where):
                signs.append(sign)
                continue
            new = place.shown(rect.left, rect.top, rect.right, rect.bottom)
            if box and _apart(box, new):
                end()
                box = None
            box = _joined(box, new) if box else new
            signs.append(sign)
        end()
        return runs
    finally:
        textpage.close()


class _Place:
    """Where things are on the page as it is shown: cut to its box, and turned as its /Rotate says."""

    def __init__(self, page: PdfPage) -> None:
        self._left, self._bottom, self._right, self._top = page.get_bbox()
        self._rotation = page.get_rotation()

    def shown(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Points from the top left corner, from points of the page's own space, where up is more."""
        if self._rotation == 90:  # noqa: PLR2004 - degrees
            return bottom - self._bottom, left - self._left, top - self._bottom, right - self._left
        if self._rotation == 180:  # noqa: PLR2004 - degrees
            return self._right - right, bottom - self._bottom, self._right - left, top - self._bottom
        if self._rotation == 270:  # noqa: PLR2004 - degrees
            return self._top - top, self._right - right, self._top - bottom, self._right - left
        return left - self._left, self._top - top, right - self._left, self._top - bottom


def _apart(box: Box, new: Box) -> bool:
    """Whether a letter does not follow on what was before it: far to the right, or back to the left on another line."""
    height = max(new[3] - new[1], 1.0)
    if new[0] - box[2] > _GAP * height:
        return True
    above_or_below = new[1] > box[3] or new[3] < box[1]
    return above_or_below and new[0] < box[2] - height


def _joined(a: Box, b: Box) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _is_tall(run: _Run) -> bool:
    left, top, right, bottom = run.box
    return len(run.text.strip()) > 2 and bottom - top > 2 * (right - left)  # noqa: PLR2004 - twice as tall as wide


def _rounded(box: Box) -> Box:
    return round(box[0], 1), round(box[1], 1), round(box[2], 1), round(box[3], 1)
