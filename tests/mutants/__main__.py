"""``python -m tests.mutants``: break the engine in every known way, and see that the simulation notices."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .catalogue import MUTANTS, Mutant
from .trial import Trial, attempt

_CONTROL = Mutant("(nothing is broken)", ())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds a mutant has to survive")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    chosen = parser.parse_args()
    mutants = [_CONTROL, *(each for each in MUTANTS if chosen.only in each.name)]
    width = max(len(each.name) for each in mutants)
    began = time.perf_counter()
    failures = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for trial in pool.map(lambda mutant: attempt(mutant, chosen.seeds), mutants):
            failures += not _as_wanted(trial)
            print(f"{trial.mutant.name:{width}}  {_fate(trial)}", flush=True)
    print(f"\n{len(mutants) - 1} mutants, {failures} not as wanted, {time.perf_counter() - began:.0f} s")
    return 1 if failures else 0


def _as_wanted(trial: Trial) -> bool:
    """A mutant must be noticed; the engine as it is must not."""
    return (trial.seed is None) is (trial.mutant is _CONTROL)


def _fate(trial: Trial) -> str:
    if trial.seed is None:
        return "survives" if trial.mutant is _CONTROL else "SURVIVED"
    told = trial.finding if len(trial.finding) <= 80 else trial.finding[:77] + "..."
    return f"seed {trial.seed:3}  {told}"


if __name__ == "__main__":
    sys.exit(main())
