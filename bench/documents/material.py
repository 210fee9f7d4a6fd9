"""What is read: scans of pages whose text is known, born-digital PDFs, and people who speak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tests.support import recordings
from tests.support.pages import scanned_pdf, text_pdf

from .texts import PAGES

Look = Literal["clean", "degraded", "two columns", "upside-down"]

LOOKS: Final[tuple[Look, ...]] = ("clean", "degraded", "two columns", "upside-down")
FONTS: Final = ("Helvetica", "Times-Roman")
LANGUAGES: Final = {"en": "English", "pt": "Portuguese"}
_PAUSE: Final = 0.5
"""Seconds between two repetitions of the recording."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A PDF of page images, and what stands on its pages."""

    language: str
    look: Look
    font: str
    texts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The set that it belongs to."""
        return f"{LANGUAGES[self.language]}, {self.look}"

    def pdf(self) -> bytes:
        """200 dpi, letters of 11 points."""
        return scanned_pdf(
            self.texts,
            font=self.font,
            columns=2 if self.look == "two columns" else 1,
            degrade=self.look == "degraded",
            rotate=180 if self.look == "upside-down" else 0,
        )


def scans(*, quick: bool) -> Iterator[Scan]:
    """Every language in every look and font; a quick run has one page of each look."""
    if quick:
        for number, look in enumerate(LOOKS):
            language = tuple(LANGUAGES)[number % 2]
            yield Scan(language, look, FONTS[number // 2 % 2], PAGES[language][number : number + 1])
        return
    for language in LANGUAGES:
        for look in LOOKS:
            for font in FONTS:
                yield Scan(language, look, font, PAGES[language])


def born_digital(pages: int) -> tuple[bytes, list[str]]:
    """A PDF with a text layer, the languages alternate; and its texts."""
    both = [text for pair in zip(*PAGES.values(), strict=True) for text in pair]
    texts = [both[number % len(both)] for number in range(pages)]
    return text_pdf(texts), texts


def scan_of(pages: int) -> bytes:
    """A clean scan, the languages alternate."""
    return scanned_pdf(born_digital(pages)[1])


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of sound, and what is said in it. Without ``language`` the engine finds it out."""

    name: str
    file: bytes
    said: str
    language: str | None


_FORMATS: Final[dict[str, Callable[[np.ndarray], bytes]]] = {
    "wav": recordings.wav,
    "mp3": recordings.mp3,
    "opus": recordings.opus,
}


def speech(*, quick: bool) -> Iterator[Recording]:
    """People who speak English, three times over: more than one stretch of a minute. A quick run hears them once."""
    repetitions = 1 if quick else 3
    once = recordings.speech()
    sound = np.concatenate([part for _ in range(repetitions) for part in (once, recordings.silence(_PAUSE))])
    said = " ".join([recordings.TRANSCRIPT] * repetitions)
    for name in ("opus",) if quick else _FORMATS:
        yield Recording(name, _FORMATS[name](sound), said, "en")
    if not quick:
        yield Recording("opus, language not told", recordings.opus(sound), said, None)
