"""Error rates: how much of a known text was read wrongly."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np

_WORD: Final = re.compile(r"[^\W_]+(?:(?:'|(?<=\d)[.,:/](?=\d))[^\W_]+)*")
_AROUND: Final = 12
"""Characters of context that a difference is shown with."""


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
    numbers: dict[Hashable, int] = {}
    columns = np.array([numbers.setdefault(each, len(numbers)) for each in read], np.int64)
    places = np.arange(len(columns) + 1)
    row = places
    for each in known:
        number = numbers.setdefault(each, len(numbers))
        replaced, omitted = row[:-1] + (columns != number), row + 1
        best = np.concatenate([omitted[:1], np.minimum(replaced, omitted[1:])])
        # An insertion goes on from the place to its left, which may itself be one: so from the best of all of them.
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])


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


def differences(known: str, read: str) -> Iterator[str]:
    """Where a reading differs, for a person: ``...before [known -> read] after...``."""
    known, read = as_compared(known), as_compared(read)
    for tag, start, end, first, last in SequenceMatcher(None, known, read, autojunk=False).get_opcodes():
        if tag != "equal":
            before, after = known[max(0, start - _AROUND) : start], known[end : end + _AROUND]
            yield f"...{before}[{known[start:end]} -> {read[first:last]}]{after}..."
