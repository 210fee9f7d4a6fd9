"""The seeds of ``make test``, cut into tests.

Several test files share them, because the test runner gives whole files to its processes.
"""

from __future__ import annotations

from typing import Final

from .seeds import SEEDS, run_seed

FILES: Final = 4
_CHUNK: Final = 25


def chunks(part: int) -> list[range]:
    """The seeds that the ``part``-th file runs."""
    starts = range(0, SEEDS, _CHUNK)
    return [range(start, min(start + _CHUNK, SEEDS)) for start in starts[part::FILES]]


def name_of(seeds: range) -> str:
    """The test's name."""
    return f"seeds {seeds[0]}-{seeds[-1]}"


def live_through(seeds: range) -> None:
    """Run the seeds; fail with what they found and how to see it again."""
    reports = [run_seed(seed) for seed in seeds]
    broken = [str(report) for report in reports if report.findings]
    assert not broken, "\n" + "\n".join(broken)
