"""The specification (docs/specification) as tests read it: its rules, and its examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "specification"
PAGES: Final = {"C": "courier.md", "D": "documents.md", "E": "email.md"}

_ROW = re.compile(r"^\| ([CDE]\d{1,3}) \| (.+) \|$", re.MULTILINE)
_CITED = re.compile(r"\b[Rr]ules? ((?:[CDE]\d{1,3}(?:, | and | to )?)+)|\(((?:[CDE]\d{1,3}(?:, | and )?)+)\)")
_NUMBER = re.compile(r"[CDE]\d{1,3}")


def rules() -> list[tuple[str, str]]:
    """Number and text of every rule, in the order of the pages."""
    return [found for page in PAGES.values() for found in _ROW.findall((FOLDER / page).read_text(encoding="utf-8"))]


def citations(text: str) -> Iterator[str]:
    """The numbers that a text cites, in the forms that docs/specification/README.md defines."""
    for in_a_sentence, in_brackets in _CITED.findall(text):
        yield from _NUMBER.findall(in_a_sentence or in_brackets)


def example(name: str) -> Any:
    """An example of the specification, read anew: a test may change it."""
    return json.loads((FOLDER / "examples" / f"{name}.json").read_text(encoding="utf-8"))
