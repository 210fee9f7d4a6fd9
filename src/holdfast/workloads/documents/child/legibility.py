"""Whether the characters of a text layer are those that the page shows.

A font may draw one letter and name another, or name none: the text layer of "THE" is then "7+(". Three answers are
possible. *Legible*: most text. *Rubbish*: characters that nobody writes. *Doubtful*: characters that somebody may have
written, such as a list of part numbers, or formulas. Of a doubtful page the picture is read too, and decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Final
from unicodedata import category, normalize

_MOST_STRANGE: Final = 0.1
"""The share of characters that nobody writes, or that the font has no name for, above which a text is not trusted."""
_NOBODY_WRITES: Final = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Control characters, unassigned ones, those of private use, and halves of characters."""

_COMMON: Final = frozenset("aeinorst")
_USUAL: Final = 0.6
_LEAST: Final = 0.45
"""In text of languages with Latin letters, these eight are about 60 of 100 letters, and 50 in the languages with the
fewest (Polish, Vietnamese). Of letters in disorder they are about 30."""

_PIECE: Final = 3
_ALIKE: Final = 0.7
"""Of the pieces of three letters in a text layer, so many are in what was read from the picture of the same page:
nearly all if it is the same text, one in ten if it is not."""


class Legibility(Enum):
    """How far a text layer can be trusted."""

    LEGIBLE = auto()
    DOUBTFUL = auto()
    RUBBISH = auto()


def legibility(signs: Sequence[str], unmapped: int) -> Legibility:
    """The judgement on the characters of a page, without white space; fonts have no name for ``unmapped`` of them."""
    counts = Counter(signs)
    strange = sum(count for sign, count in counts.items() if sign == "\ufffd" or category(sign) in _NOBODY_WRITES)
    if strange > _MOST_STRANGE * len(signs):
        return Legibility.RUBBISH
    # Some fonts name nothing, and their characters are right all the same: old TeX fonts, for instance.
    if unmapped > _MOST_STRANGE * len(signs) or _is_mostly_marks(signs) or _has_unusual_letters(counts):
        return Legibility.DOUBTFUL
    return Legibility.LEGIBLE


def agree(layer: str, read: str) -> bool:
    """Whether a text layer says what was read from the picture of its page, but for what an engine misreads.

    An engine that reads nothing says nothing against the layer: it may not know the script.
    """
    pieces, seen = _pieces(layer), _pieces(read)
    return not seen or len(pieces & seen) >= max(_ALIKE * len(pieces), 1)


def _is_mostly_marks(signs: Sequence[str]) -> bool:
    """Whether there are more marks than letters and digits. A row of dots or dashes counts as one mark."""
    rows = Counter(sign for sign, _ in groupby(signs))
    marks = sum(count for sign, count in rows.items() if category(sign)[0] in "PS")
    # Vowel signs of Indian scripts and of Thai are combining characters (M).
    written = sum(count for sign, count in rows.items() if category(sign)[0] in "LNM")
    return marks > written


def _has_unusual_letters(counts: Counter[str]) -> bool:
    """Whether the letters are Latin, and their frequencies those of no language. The fewer letters, the more may pass.

    Other scripts are not judged: a font without names gives Latin letters, digits and marks.
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


def _plain(sign: str) -> str:
    """The letter in lower case, without accents."""
    return normalize("NFKD", sign)[0].lower()


def _pieces(text: str) -> set[str]:
    plain = "".join(filter(str.isalnum, normalize("NFKD", text).casefold()))
    size = min(_PIECE, len(plain))
    return {plain[at : at + size] for at in range(len(plain) - size + 1)} if plain else set()
