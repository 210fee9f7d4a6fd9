"""The fate of each event: how it should end, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Fate:
    """How one event should end, and how it ended."""

    event: str
    expected: str
    actual: str

    @property
    def as_expected(self) -> bool:
        """Whether the event ended as it should."""
        return self.expected == self.actual


def all_as_expected(fates: Sequence[Fate]) -> bool:
    """Whether there are fates, and all are as expected."""
    return bool(fates) and all(fate.as_expected for fate in fates)
