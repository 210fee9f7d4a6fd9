"""``python -m tests.simulation SEED [--trace]``, or a range: ``python -m tests.simulation 0-500``."""

from __future__ import annotations

import argparse
import sys
import time

from .seeds import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="a seed, or a range such as 0-500")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--first", action="store_true", help="stop at the first seed with a finding")
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition("-")
    failed = 0
    began = time.perf_counter()
    seeds = range(int(first), int(last or first) + 1)
    for seed in seeds:
        report = run_seed(seed)
        if chosen.trace:
            for at, who, what, *details in report.trace:
                print(f"{at:9.3f} {who:10} {what:24}", *details)
        if report.findings:
            failed += 1
            print(report)
            if chosen.first:
                break
    print(f"{len(seeds)} seeds, {failed} with findings, {time.perf_counter() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
