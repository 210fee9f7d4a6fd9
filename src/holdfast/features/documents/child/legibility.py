"""Whether the characters of a text layer are those that the page shows.

A font may draw one letter and name another, or name none: the text layer of "THE" is then "7+(". A text is one of
three. *Legible*: most text. *Rubbish*: characters that nobody writes. *Doubtful*: characters that somebody may have
written, such as a list of part numbers, or formulas. The picture of a doubtful page is read too, and decides.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Final
from unicodedata import category, normalize

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
