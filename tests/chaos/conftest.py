"""Kill tests: real processes, ended where it hurts; here on one SQLite file, in ``cluster`` on Redis and MongoDB.

``make test`` runs them short; ``make chaos`` runs them for HOLDFAST_CHAOS_ROUNDS rounds and prints their figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.long_run import LONG_RUN

_FIGURES = "chaos figures"


@pytest.fixture
def rounds() -> int:
    """How long to go on. Each round is a few seconds."""
    return int(os.environ.get("HOLDFAST_CHAOS_ROUNDS", "1"))


@pytest.fixture
def seed() -> int:
    """Chance, but the same one again when HOLDFAST_CHAOS_SEED names it."""
    return int(os.environ.get("HOLDFAST_CHAOS_SEED") or int.from_bytes(os.urandom(4), "big"))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[Mapping[str, object]], None]:
    """Put figures into the summary of the run."""
    return lambda figures: record_property(_FIGURES, "  ".join(f"{name}: {value}" for name, value in figures.items()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            # Other tests share the two cores of a small machine: a limit on hanging, not on slowness.
            item.add_marker(pytest.mark.timeout(3600 if LONG_RUN else 600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, value in getattr(report, "user_properties", ()):
            if name == _FIGURES and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
