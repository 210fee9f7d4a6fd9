"""What we want to reach, and what was missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_CHARACTERS: Final = 0.005
MOST_WORDS: Final = 0.05
"""Wrong ones, as parts of one: in each set of pages and in all of them together, and in each recording."""


def missed(figures: Mapping[str, Any]) -> list[str]:
    """The aims that were not reached, a sentence each."""
    sentences = []
    if "pages" in figures:
        for each in (*figures["pages"]["sets"], figures["pages"]["all"]):
            sentences += _over(f"{each['name']}: characters", each["character_error_rate"], MOST_CHARACTERS)
    if "text_layer" in figures:
        sentences += _over("Born-digital: characters", figures["text_layer"]["character_error_rate"], MOST_CHARACTERS)
    for each in figures.get("speech", ()):
        sentences += _over(f"{each['name']}: words", each["word_error_rate"], MOST_WORDS)
    return sentences


def _over(what: str, rate: float, aim: float) -> list[str]:
    return [f"{what} {100 * rate:.2f} % wrong, and {100 * aim:g} % is the aim."] if rate > aim else []
