"""The text that a page of a PDF already holds, in reading order, with the places of its lines.

The characters of a text layer need not be those that the page shows. A font may draw one letter and name another, or
name none: the text layer of "THE" is then "7+(". A text is one of three. *Legible*: most text. *Rubbish*: characters
that nobody writes. *Doubtful*: characters that somebody may have written, such as a list of part numbers, or formulas.
The picture of a doubtful page is read too, and decides.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final
from unicodedata import category, normalize

import pypdfium2
import pypdfium2.raw as pdfium

from .layout import Box, composed, reading_order
from .protocol import Line

if TYPE_CHECKING:
    from pypdfium2 import PdfPage


_MOST_STRANGE: Final = 0.1
"""A text is not trusted if nobody writes a larger share of its characters, or the font has no name for them."""
_NOBODY_WRITES: Final = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Unicode categories: control characters, unassigned characters, private use, and halves of characters."""

_COMMON: Final = frozenset("aeinorst")
_USUAL: Final = 0.6
_LEAST: Final = 0.45
"""In text of languages with Latin letters, these eight are about 60 of 100 letters, and 50 in the languages with the
fewest (Polish, Vietnamese). Of letters in disorder they are about 30."""

_DIGIT: Final = re.compile(r"\d")
_NUMBER: Final = re.compile(r"[(\[<~#$\u20ac\u00a3+\u2212-]{0,3}\d+(?:[-.,:/'\u2013]\d+)*[-%\u2030\u00b0.,;:)\]*]{0,3}")
"""A number, a date, a time, an amount, a number of a telephone or of a document."""

_PIECE: Final = 3
_ALIKE: Final = 0.7
"""Of the pieces of three letters in a text layer, so many are in what was read from the picture of the same page:
nearly all if it is the same text, one in ten if it is not."""


class Legibility(Enum):
    """How far a text layer can be trusted."""

    LEGIBLE = auto()
    DOUBTFUL = auto()
    RUBBISH = auto()


def legibility(text: str, unmapped: int) -> Legibility:
    """How far the text of a page can be trusted. Fonts have no name for ``unmapped`` of its characters."""
    words = text.split()
    signs = "".join(words)
    counts = Counter(signs)
    strange = sum(count for sign, count in counts.items() if sign == "\ufffd" or category(sign) in _NOBODY_WRITES)
    if strange > _MOST_STRANGE * len(signs):
        return Legibility.RUBBISH
    # Some fonts have no names, but their characters are right: old TeX fonts, for example.
    if (
        unmapped > _MOST_STRANGE * len(signs)
        or _is_mostly_marks(signs)
        or _has_unusual_letters(counts)
        or _has_unusual_numbers(words)
    ):
        return Legibility.DOUBTFUL
    return Legibility.LEGIBLE


def agree(layer: str, read: str) -> bool:
    """Whether a text layer is the text that was read from the picture of its page. A few misread letters are allowed.

    If the engine read nothing, the layer is trusted: the engine may not know the script.
    """
    pieces, seen = _pieces(layer), _pieces(read)
    return not seen or len(pieces & seen) >= max(_ALIKE * len(pieces), 1)


def _is_mostly_marks(signs: str) -> bool:
    """Whether there are more marks than letters and digits. A row of dots or dashes counts as one mark."""
    rows = Counter(sign for sign, _ in groupby(signs))
    marks = sum(count for sign, count in rows.items() if category(sign)[0] in "PS")
    # Vowel signs of Indian scripts and of Thai are combining characters (M).
    written = sum(count for sign, count in rows.items() if category(sign)[0] in "LNM")
    return marks > written


def _has_unusual_letters(counts: Counter[str]) -> bool:
    """Whether the letters are Latin, and their frequencies are those of no language. Short texts may differ more.

    Other scripts are not checked: a font without names gives Latin letters, digits and marks.
    """
    letters: Counter[str] = Counter()
    for sign, count in counts.items():
        if sign.isalpha():
            letters[_plain(sign)] += count
    latin = sum(count for letter, count in letters.items() if "a" <= letter <= "z")
    if not latin or latin * 2 < letters.total():
        return False
    common = sum(letters[letter] for letter in _COMMON)
    return common < min(_USUAL * latin - math.sqrt(latin), _LEAST * latin)


def _has_unusual_numbers(words: Sequence[str]) -> bool:
    """Whether most words with digits are no numbers. In a font without names, capital letters look like "7+("."""
    numbers = [word for word in words if _DIGIT.search(word) and not any(map(str.isalpha, word))]
    return 2 * sum(_NUMBER.fullmatch(word) is None for word in numbers) > len(numbers)


def _plain(sign: str) -> str:
    """The letter in lower case, without accents."""
    return normalize("NFKD", sign)[0].lower()


def _pieces(text: str) -> set[str]:
    plain = "".join(filter(str.isalnum, normalize("NFKD", text).casefold()))
    size = min(_PIECE, len(plain))
    return {plain[at : at + size] for at in range(len(plain) - size + 1)} if plain else set()


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
