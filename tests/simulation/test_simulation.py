"""The simulation itself: that a seed is a story one can tell again, and that the stories are worth telling."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.contracts.crash_points import CRASH_POINTS
from holdfast.contracts.lifecycle import EDGES
from tests.simulation.seeds import run_seed
from tests.simulation.workloads import BEHAVIOURS

_CLAIMS = ("Claimed", "Exhausted", "Interrupted", "Overdue", "NotNow", "AlreadySettled")
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [3, 11, 42])
def test_a_seed_tells_the_same_story_again(seed):
    assert run_seed(seed).digest == run_seed(seed).digest


def test_two_seeds_tell_different_stories():
    assert run_seed(1).digest != run_seed(2).digest


def test_a_story_does_not_depend_on_the_order_of_sets():
    def digests(hash_seed):
        program = "from tests.simulation.seeds import run_seed; print([run_seed(seed).digest for seed in range(10)])"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.check_output([sys.executable, "-c", program], cwd=_ROOT, env=environment, text=True)

    assert digests("1") == digests("2")


@pytest.mark.slow
def test_the_stories_go_everywhere():
    """Every legal step, every crash point, every kind of handler, every answer to a claim, every fault."""
    wanted = {
        *(f"step {start} -> {end}" for start, end in EDGES),
        *(f"killed at {point}" for point in (*CRASH_POINTS, "worker.proceeding", "worker.proceeded")),
        *(f"handled {behaviour}" for behaviour in BEHAVIOURS),
        *(f"claim {answer}" for answer in _CLAIMS),
        *(f"told {transition}" for transition in ("new", "duplicate", "conflict")),
        *("queue wiped", "frozen", "reply lost", "error", "told to stop", "adopted", "stale", "batch split"),
        *("replay confirmed", "replay refused", "foreign buried"),
    }
    for seed in range(300):
        wanted -= run_seed(seed).reached
        if not wanted:
            return
    assert not wanted
