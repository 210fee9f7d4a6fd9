"""Pages and speech, read in the child: how much is wrong, how fast it goes, and what it takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import child, material
from .measures import Errors, characters_wrong, differences, words, words_wrong
from .tesseract import Tesseract

Figures = dict[str, Any]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Read:
    """One PDF, as an engine read it."""

    known: Sequence[str]
    texts: Sequence[str]
    at_work: float
    started_in: float
    cpu_seconds: float
    peak_bytes: int | None

    @property
    def errors(self) -> Errors:
        return _wrong(self.known, self.texts)


def measure_pages(tesseract: Tesseract | None, *, quick: bool, tell: Tell) -> Figures:
    """Scans, set by set, and all together; the same by Tesseract where there is one."""
    sets, ours, theirs = [], [], []
    for name, group in itertools.groupby(material.scans(quick=quick), key=lambda scan: scan.name):
        scans = [(scan, scan.pdf()) for scan in group]
        readings = [_ours(scan, pdf) for scan, pdf in scans]
        others = [_theirs(tesseract, scan, pdf) for scan, pdf in scans if tesseract and tesseract.knows(scan.language)]
        ours += readings
        theirs += others
        sets.append({"name": name, **_figures(readings), "tesseract": _figures(others) if others else None})
        tell(f"{name}: {sets[-1]['wrong']} of {sets[-1]['characters']} characters wrong")
    whole = {"name": "all", **_figures(ours), "tesseract": _figures(theirs) if theirs else None}
    return {"sets": sets, "all": whole}


def measure_text_layer(*, quick: bool, tell: Tell) -> Figures:
    """A long PDF that has its text already."""
    pages = 60 if quick else 300
    pdf, texts = material.born_digital(pages)
    reading = child.read(pdf, kind="PDF")
    errors = _wrong(texts, reading.texts)
    tell(f"born-digital, {pages} pages: {reading.seconds:.2f} s")
    return {
        "pages": pages,
        "characters": errors.total,
        "wrong": errors.wrong,
        "character_error_rate": errors.rate,
        "pages_per_second": pages / reading.at_work,
        "seconds": reading.seconds,
        "cpu_seconds": reading.cpu_seconds,
        "peak_bytes": reading.peak_bytes,
        "differences": _differences(texts, reading.texts),
    }


def measure_speech(*, quick: bool, tell: Tell) -> list[Figures]:
    """The same words in several kinds of files."""
    figures = []
    for recording in material.speech(quick=quick):
        reading = child.read(recording.file, kind="AUDIO", language=recording.language)
        heard = " ".join(reading.texts)
        errors = words_wrong(recording.said, heard)
        seconds = reading.duration or 0.0
        figures.append(
            {
                "name": recording.name,
                "seconds": seconds,
                "chunks": len(reading.units),
                "words": errors.total,
                "wrong": errors.wrong,
                "word_error_rate": errors.rate,
                "real_time_factor": reading.at_work / seconds,
                "real_time_factor_whole": reading.seconds / seconds,
                "start_seconds": reading.seconds - reading.at_work,
                "cpu_seconds": reading.cpu_seconds,
                "peak_bytes": reading.peak_bytes,
                "differences": differences(*(" ".join(words(text)) for text in (recording.said, heard))),
            }
        )
        tell(f"{recording.name}: {errors.wrong} of {errors.total} words wrong")
    return figures


def _ours(scan: material.Scan, pdf: bytes) -> _Read:
    reading = child.read(pdf, kind="PDF", language=scan.language)
    started_in = reading.seconds - reading.at_work
    return _Read(scan.texts, reading.texts, reading.at_work, started_in, reading.cpu_seconds, reading.peak_bytes)


def _theirs(tesseract: Tesseract, scan: material.Scan, pdf: bytes) -> _Read:
    sheets = tesseract.read(pdf, scan.language)
    return _Read(scan.texts, sheets.texts, sheets.seconds, 0.0, sheets.cpu_seconds, sheets.peak_bytes)


def _figures(readings: Sequence[_Read]) -> Figures:
    pages = sum(len(each.known) for each in readings)
    errors = sum((each.errors for each in readings), Errors())
    return {
        "pages": pages,
        "characters": errors.total,
        "wrong": errors.wrong,
        "character_error_rate": errors.rate,
        "pages_per_minute": 60 * pages / sum(each.at_work for each in readings),
        "start_seconds": sum(each.started_in for each in readings) / len(readings),
        "cpu_seconds_per_page": sum(each.cpu_seconds for each in readings) / pages,
        "peak_bytes": max((each.peak_bytes for each in readings if each.peak_bytes is not None), default=None),
        "differences": [line for each in readings for line in _differences(each.known, each.texts)],
    }


def _wrong(known: Iterable[str], texts: Iterable[str]) -> Errors:
    return sum((characters_wrong(one, other) for one, other in zip(known, texts, strict=True)), Errors())


def _differences(known: Iterable[str], texts: Iterable[str]) -> list[str]:
    return [line for one, other in zip(known, texts, strict=True) for line in differences(one, other)]
