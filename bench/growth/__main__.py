"""``make bench-growth``: the cost of a job, of lists and of the disk, on ledgers of several sizes (embedded)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.machine import machine

from .costs import measure_intake, measure_work, size_on_disk
from .filling import fill, forget_waiting, make_sample
from .reading import measure_commands, measure_pages

_SIZES: Final = (1_000, 100_000, 1_000_000, 5_000_000)
_QUICK: Final = (1_000, 5_000)
_OURS: Final = ("REDIS_URL", "MONGO_URI", "HOLDFAST_DATA", "HOLDFAST_APP")


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    for name in _OURS:
        os.environ.pop(name, None)
    sizes = _QUICK if arguments.quick else arguments.sizes
    count, waiting = (500, 2_000) if arguments.quick else (arguments.count, arguments.waiting)
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="holdfast-growth-", dir=arguments.folder) as name:
        figures = measure(Path(name) / "data", sizes, waiting, count)
    result = {"machine": facts, "load_after": f"{os.getloadavg()[0]:.2f}", "count": count, "sizes": figures}
    if arguments.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        show(result, Console())
    return 0


def measure(data: Path, sizes: tuple[int, ...], waiting: int, count: int) -> list[dict[str, Any]]:
    """Each size without and with a backlog, on one store that grows."""
    make_sample(data)
    found = []
    first = 30_000
    for settled in sorted(sizes):
        line: dict[str, Any] = {"settled": settled}
        forget_waiting(data)
        fill(data, settled=settled, waiting=0, tell=_tell)
        line["bytes_each"] = size_on_disk(data) / max(1, settled)
        for backlog in (0, waiting):
            if backlog:
                fill(data, settled=settled, waiting=backlog, tell=_tell)
            intake = measure_intake(data, count=count, first=first)
            first += 2 * count
            work = measure_work(data, count=count)
            line[f"waiting {backlog}"] = {"intake": intake, "work": work}
            _tell(
                f"{settled:,} settled, {backlog:,} waiting: intake {intake['per_second']:,.0f}/s "
                f"{_number(intake['cpu_us'])} us, work {work['per_second']:,.0f}/s {_number(work['cpu_us'])} us"
            )
        line["pages_ms"] = measure_pages(data)
        line["commands_ms"] = measure_commands(data)
        found.append(line)
    return found


def show(result: dict[str, Any], console: Console) -> None:
    """For a person."""
    facts = result["machine"]
    title = f"{result['count']:,} events each; {facts['processor']}; load {facts['load_before']} before"
    table = Table(title=title)
    for column in ("settled", "waiting", "intake/s", "p99 ms", "us", "work/s", "us", "bytes each"):
        table.add_column(column, justify="right")
    for line in result["sizes"]:
        for name, costs in line.items():
            if name.startswith("waiting "):
                intake, work = costs["intake"], costs["work"]
                table.add_row(
                    f"{line['settled']:,}",
                    f"{int(name.split()[1]):,}",
                    f"{intake['per_second']:,.0f}",
                    f"{intake['p99_ms']:,.0f}",
                    _number(intake["cpu_us"]),
                    f"{work['per_second']:,.0f}",
                    _number(work["cpu_us"]),
                    f"{line['bytes_each']:,.0f}",
                )
    console.print(table)
    for what in ("pages_ms", "commands_ms"):
        table = Table(title="page over HTTP, ms" if what == "pages_ms" else "command, ms")
        table.add_column("what")
        for line in result["sizes"]:
            table.add_column(f"{line['settled']:,}", justify="right")
        for name in result["sizes"][0][what]:
            table.add_row(name, *(f"{line[what][name]:,.1f}" for line in result["sizes"]))
        console.print(table)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-growth", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=_SIZES, help="settled entries (default 1,000 to 5,000,000: 15 GB)"
    )
    parser.add_argument(
        "--waiting", type=int, default=200_000, help="waiting jobs in the second case (default 200,000)"
    )
    parser.add_argument("--count", type=int, default=5_000, help="events in each measurement (default 5,000)")
    parser.add_argument("--quick", action="store_true", help="1,000 and 5,000 entries, 2,000 waiting: a minute")
    parser.add_argument("--folder", type=Path, help="where the file grows (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
