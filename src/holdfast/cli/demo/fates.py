"""What should become of each event, and what did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of one event's story."""

    event: str
    expected: str
    actual: str

    @property
    def as_expected(self) -> bool:
        """Whether the story ended as it should."""
        return self.expected == self.actual


def all_as_expected(fates: Sequence[Fate]) -> bool:
    """Whether there are stories, and every one ended as it should."""
    return bool(fates) and all(fate.as_expected for fate in fates)
