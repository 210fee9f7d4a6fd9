"""``python -m bench.scale``: what 1,000, 10,000 and 100,000 events a second need, by the stored measurement."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from .model import TARGET, cpu_of_an_event, first_to_give_way, load, parts
from .simulation import delays


def main() -> int:
    """Compute and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[1_000, 10_000, 100_000], help="events a second")
    arguments = parser.parse_args()
    measured = load()
    console = Console()
    found = parts(measured)
    table = Table(title=f"{cpu_of_an_event(measured):,.0f} us/event; each part at most {TARGET:.0%} busy")
    for column in ("part", "us/event", "limit of one/s", *(f"{rate:,.0f}/s" for rate in arguments.rates)):
        table.add_column(column, justify="left" if column == "part" else "right")
    for part in found:
        needs = (f"{part.copies(rate)} ({part.cores(rate):,.1f} cores busy)" for rate in arguments.rates)
        table.add_row(part.name, f"{part.us:,.0f}", f"{part.limit():,.0f}", *needs)
    waits = (delays(found, [part.copies(rate) for part in found], rate) for rate in arguments.rates)
    table.add_row("delay by queueing, p50 / p99", "", "", *(f"{p50:.1f} / {p99:.1f} ms" for p50, p99 in waits))
    console.print(table)
    console.print(f"The first to give way: {first_to_give_way(measured).name}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
