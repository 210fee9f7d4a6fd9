"""Tesseract on the same page images, where it is installed: what another free engine makes of them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.pages import page_images

from .memory import LOOK_EVERY, Watch, cpu_of_children

_DPI: Final = 200
_NAMES: Final = {"en": "eng", "pt": "por"}
_ORIENTATION: Final = "osd"
_NICE: Final = 5
_THREADS: Final = 1
"""Its threads wait by spinning: on a busy machine two of them took seven times the processor time of one."""


@dataclass(frozen=True, slots=True)
class Sheets:
    """What it read on each page of a PDF, and what that took, starting it for each page included."""

    texts: list[str]
    seconds: float
    cpu_seconds: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Tesseract:
    """The program that is installed, and the languages that came with it."""

    version: str
    languages: frozenset[str]

    def knows(self, language: str) -> bool:
        """Whether it has the data for a language."""
        return _NAMES[language] in self.languages

    def read(self, pdf: bytes, language: str) -> Sheets:
        """Read the pages one by one. It is told the language and the resolution, and may turn the page."""
        # Finding out how a page lies needs data of its own; without it, pages are taken to be upright.
        segmentation = "1" if _ORIENTATION in self.languages else "3"
        options = ["-l", _NAMES[language], "--dpi", str(_DPI), "--psm", segmentation]
        watch, used, seconds = Watch(), cpu_of_children(), 0.0
        texts = []
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            image, out = Path(folder) / "page.png", Path(folder) / "page"
            for page in page_images(pdf, dpi=_DPI):
                page.save(image, dpi=(_DPI, _DPI))
                began = time.perf_counter()
                done = _run(["tesseract", str(image), str(out), *options], watch)
                seconds += time.perf_counter() - began
                # When it cannot make out how a page lies, or find text at all, that is a reading too: an empty one.
                texts.append(out.with_suffix(".txt").read_text(encoding="utf-8") if done else "")
        return Sheets(texts, seconds, cpu_of_children() - used, watch.peak)


def installed() -> Tesseract | None:
    """None where it is not."""
    try:
        version, languages = _output_of("--version"), _output_of("--list-langs")
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"tesseract v?(\S+)", version)
    return Tesseract(found[1] if found else "unknown", frozenset(languages.split()))


def _output_of(option: str) -> str:
    # Some versions answer on standard error.
    command = ["tesseract", option]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def _run(command: list[str], watch: Watch) -> bool:
    """Whether it succeeded. It lets others go first, as our child does."""
    environment = {**os.environ, "OMP_THREAD_LIMIT": str(_THREADS)}
    behind = ["nice", "-n", str(_NICE), *command]
    with subprocess.Popen(behind, stderr=subprocess.DEVNULL, env=environment) as process:
        while process.poll() is None:
            watch.look()
            time.sleep(LOOK_EVERY)
    return process.returncode == 0
