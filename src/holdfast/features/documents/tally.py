"""What a result says about all units together: characters, confidence, language and warnings.

A unit is a dict like ``Page`` or ``Chunk`` of :mod:`.child.protocol`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .contract import JobType

Unit = Mapping[str, Any]

MOST_WARNINGS: Final = 100
_LONGEST_WARNING: Final = 500
_LONGEST_LANGUAGE: Final = 35
_COPIED: Final = frozenset({"text_layer", "blank", "unreadable"})


class Tally:
    """What a result says about all units together, added up one unit at a time."""

    def __init__(self, job_type: JobType) -> None:
        self.units = 0
        self.characters = 0
        self.language: str | None = None
        self.needed_a_model = False
        self._job_type = job_type
        self._rated = 0
        self._sure = 0.0
        self._warnings: list[str] = []
        self._more_warnings = 0

    def add(self, unit: Unit) -> None:
        """Count one unit more."""
        self.units += 1
        self.characters += characters_of(self._job_type, [unit])
        for length, sure in _rated(self._job_type, [unit]):
            self._rated += length
            self._sure += length * sure
        self.language = self.language or _language_of(unit)
        # A text layer is copied without an engine; a recording always needs one.
        self.needed_a_model = self.needed_a_model or unit.get("source") not in _COPIED
        if unit.get("warning"):
            if len(self._warnings) < MOST_WARNINGS:
                self._warnings.append(str(unit["warning"])[:_LONGEST_WARNING])
            else:
                self._more_warnings += 1

    @property
    def confidence(self) -> float | None:
        """The engine's confidence from 0 to 1: the mean over all characters that have one."""
        return round(self._sure / self._rated, 4) if self._rated else None

    def warnings(self, of_file: Sequence[str]) -> list[str]:
        """The warnings of a file, then of its pages: one sentence each, at most ``MOST_WARNINGS`` and a last one."""
        found = [*(str(each)[:_LONGEST_WARNING] for each in of_file), *self._warnings]
        more = len(found) + self._more_warnings - MOST_WARNINGS
        if more > 0:
            found[MOST_WARNINGS:] = [f"There are {more} more warnings, on the pages of result.json."]
        return found


def _language_of(unit: Unit) -> str | None:
    """The language that the engine detected. The child is not trusted: no language has a long name."""
    found = unit.get("language")
    return found if isinstance(found, str) and 0 < len(found) <= _LONGEST_LANGUAGE else None


def characters_of(job_type: JobType, units: Sequence[Unit]) -> int:
    """How many characters were read; white space is not counted."""
    return sum(len("".join(part["text"].split())) for part in _parts(job_type, units))


def confidence_of(job_type: JobType, units: Sequence[Unit]) -> float | None:
    """The engine's confidence from 0 to 1: the mean over all characters that have one. None: no character has one."""
    tally = Tally(job_type)
    for unit in units:
        tally.add(unit)
    return tally.confidence


def _rated(job_type: JobType, units: Sequence[Unit]) -> Iterator[tuple[int, float]]:
    """The length and the confidence of each part that has one."""
    for part in _parts(job_type, units):
        if part.get("confidence") is not None and math.isfinite(part["confidence"]) and part["text"]:
            yield len(part["text"]), part["confidence"]


def warnings_of(of_file: Sequence[str], units: Sequence[Unit]) -> list[str]:
    """The warnings of a file and of these units: see :meth:`Tally.warnings`."""
    tally = Tally(JobType.OCR)
    for unit in units:
        tally.add({"text": "", "warning": unit.get("warning")})
    return tally.warnings(of_file)


def segments_of(chunks: Sequence[Unit]) -> list[Unit]:
    """The segments of all chunks."""
    return [segment for chunk in chunks for segment in chunk["segments"]]


def _parts(job_type: JobType, units: Sequence[Unit]) -> Sequence[Unit]:
    return units if job_type is JobType.OCR else segments_of(units)
