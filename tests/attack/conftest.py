"""Attacks over real sockets on a running gateway: each tries to take the service from the others (I18).

``make test`` runs them short; ``make attack`` runs them for HOLDFAST_ATTACK_ROUNDS rounds and prints their figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest

_FIGURES = "attack figures"


@pytest.fixture
def rounds() -> int:
    """How often to repeat an attack."""
    return int(os.environ.get("HOLDFAST_ATTACK_ROUNDS", "1"))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[Mapping[str, object]], None]:
    """Put figures into the summary of the run: ``tried``, ``got through``, ``longest wait``, and what else there is."""
    return lambda figures: record_property(_FIGURES, "  ".join(f"{name}: {value}" for name, value in figures.items()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, value in getattr(report, "user_properties", ()):
            if name == _FIGURES and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
