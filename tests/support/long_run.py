"""Short in ``make test``, long in ``make chaos``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pytest

LONG_RUN: Final = "HOLDFAST_CHAOS_ROUNDS" in os.environ
ENTRIES: Final = 2_000 if LONG_RUN else 100
"""How many entries a fault test has at least; about a third of its requests are duplicates on top."""
CALM: Final = 100 if LONG_RUN else 20
"""How many new entries there are between one fault and the next."""


def one_by_one(faults: Sequence[Any]) -> list[Any]:
    """In a long run each fault has a run of its own; in a short one they share a run."""
    if LONG_RUN:
        return [pytest.param((fault,), id=fault.__name__) for fault in faults]
    return [pytest.param(tuple(faults), id="all")]


def often(faults: Sequence[Any], rounds: int, *, every: int = 5) -> list[Any]:
    """The faults of one run: once in a short run, once for every so many rounds in a long one."""
    return list(faults) * (max(1, rounds // every) if LONG_RUN else 1)
