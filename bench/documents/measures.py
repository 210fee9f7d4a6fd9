"""Error rates: how much of a known text was read wrongly."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

_WORD: Final = re.compile(r"[^\W_]+(?:(?:'|(?<=\d)[.,:/](?=\d))[^\W_]+)*")
_AROUND: Final = 12
"""Characters of context that a difference is shown with."""
_Place = tuple[int, int]
"""How many characters of the known text, and of what was read, come before."""


@dataclass(frozen=True, slots=True)
class Errors:
    """``wrong`` of ``total`` characters or words: replaced, missing, or too many."""

    wrong: int = 0
    total: int = 0

    @property
    def rate(self) -> float:
        """As a part of one. It exceeds one where more was made up than there is."""
        return self.wrong / self.total if self.total else 0.0

    def __add__(self, other: Errors) -> Errors:
        """Of both texts together."""
        return Errors(self.wrong + other.wrong, self.total + other.total)


def edits(known: Sequence[Hashable], read: Sequence[Hashable]) -> int:
    """The fewest replacements, omissions and insertions that make one of the other (Levenshtein's distance)."""
    *_, last = _rows(known, read)
    return int(last[-1])


def _rows(known: Sequence[Hashable], read: Sequence[Hashable]) -> Iterator[np.ndarray]:
    """For each beginning of ``known``, the empty one first: its distance to each beginning of ``read``."""
    numbers: dict[Hashable, int] = {}
    columns = np.array([numbers.setdefault(each, len(numbers)) for each in read], np.int32)
    places = np.arange(len(columns) + 1, dtype=np.int32)
    row = places
    yield row
    for each in known:
        number = numbers.setdefault(each, len(numbers))
        replaced, omitted = row[:-1] + (columns != number), row + 1
        best = np.concatenate([omitted[:1], np.minimum(replaced, omitted[1:])])
        # An insertion goes on from the place to its left, which may itself be one: so from the best of all of them.
        row = np.minimum.accumulate(best - places) + places
        yield row


def as_compared(text: str) -> str:
    """White space of any kind and length is one blank. An accent is a part of its letter, however it is encoded."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def characters_wrong(known: str, read: str) -> Errors:
    """For the character error rate. The order counts: a column that is read too early is wrong as a whole."""
    known, read = as_compared(known), as_compared(read)
    return Errors(edits(known, read), len(known))


def words(text: str) -> list[str]:
    """Lower-cased, without punctuation, numbers as they are written; an apostrophe is a part of its word."""
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def words_wrong(known: str, read: str) -> Errors:
    """For the word error rate."""
    expected = words(known)
    return Errors(edits(expected, words(read)), len(expected))


def differences(known: str, read: str) -> list[str]:
    """Where a reading differs, for a person: ``...before [known -> read] after...``. No other way has fewer edits."""
    known, read = as_compared(known), as_compared(read)
    found = []
    for (start, first), (end, last) in _stretches(known, read):
        before, after = known[max(0, start - _AROUND) : start], known[end : end + _AROUND]
        found.append(f"...{before}[{known[start:end]} -> {read[first:last]}]{after}...")
    return found


def _stretches(known: str, read: str) -> list[tuple[_Place, _Place]]:
    """Where stretches that differ begin and end in both, in order: the table of distances, walked from its end."""
    rows = list(_rows(known, read))
    here = end = (len(known), len(read))
    found: list[tuple[_Place, _Place]] = []
    while any(here):
        i, j = here
        if i and j and known[i - 1] == read[j - 1]:
            if here != end:
                found.append((here, end))
            here = end = (i - 1, j - 1)
        elif i and j and rows[i][j] == rows[i - 1][j - 1] + 1:
            here = (i - 1, j - 1)
        elif i and rows[i][j] == rows[i - 1][j] + 1:
            here = (i - 1, j)
        else:
            here = (i, j - 1)
    if here != end:
        found.append((here, end))
    return found[::-1]
