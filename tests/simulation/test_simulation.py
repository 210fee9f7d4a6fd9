"""The simulation itself: the same seed gives the same run, and the runs reach everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.contracts.crash_points import CRASH_POINTS, POINTS_OF_SCHEDULES
from holdfast.contracts.ledger import Cancelled
from holdfast.contracts.transitions import EDGES
from tests.simulation.seeds import run_seed
from tests.simulation.workloads import BEHAVIOURS

_CLAIMS = ("Claimed", "Exhausted", "Interrupted", "Overdue", "NotNow", "AlreadySettled")
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [3, 11, 42])
def test_a_seed_gives_the_same_run_again(seed):
    assert run_seed(seed).digest == run_seed(seed).digest


def test_two_seeds_give_different_runs():
    assert run_seed(1).digest != run_seed(2).digest


def test_a_run_does_not_depend_on_the_order_of_sets():
    def digests(hash_seed):
        program = "from tests.simulation.seeds import run_seed; print([run_seed(seed).digest for seed in range(10)])"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.check_output([sys.executable, "-c", program], cwd=_ROOT, env=environment, text=True)

    assert digests("1") == digests("2")


@pytest.mark.slow
def test_the_runs_reach_everything():
    """Every legal step, every crash point, every kind of handler, every answer to a claim, every fault."""
    wanted = {
        *(f"step {start} -> {end}" for start, end in EDGES),
        *(f"killed at {point}" for point in (*CRASH_POINTS, "worker.proceeding", "worker.proceeded")),
        *(f"killed at {point}" for point in POINTS_OF_SCHEDULES),
        *(f"handled {behaviour}" for behaviour in BEHAVIOURS),
        *(f"claim {answer}" for answer in _CLAIMS),
        *(f"told {recorded}" for recorded in ("new", "duplicate", "conflict")),
        *("queue wiped", "frozen", "reply lost", "error", "told to stop", "adopted", "stale", "batch split"),
        *(f"cancel {answer.value}" for answer in Cancelled),
        *("replay confirmed", "replay refused", "foreign dead-lettered", "stopped"),
    }
    for seed in range(300):
        wanted -= run_seed(seed).reached
        if not wanted:
            return
    assert not wanted
