"""``make bench``: intake, work, and both together, on the embedded default; then emails."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import email, email_report
from .gateway import generate_load, running

_PARTS = ("events", "emails")
_DRAIN_SECONDS = 180.0
_STATES = "SELECT status, count(*) FROM processed_events GROUP BY status"
_SPAN = """
SELECT count(*), min(attempts ->> '$[0].startedAt'), max(attempts ->> '$[#-1].finishedAt')
FROM ledger_entries WHERE status = 'processed'
"""


def measure_intake(folder: Path, count: int, connections: int) -> dict[str, float]:
    """The API alone: signed posts, answered after the durable commit."""
    with running("api", folder / "data") as gateway:
        generate_load(gateway, count=min(2000, count), connections=connections, first=900_000_000)  # warm up
        return generate_load(gateway, count=count, connections=connections)


def measure_work(folder: Path) -> dict[str, float]:
    """A worker alone on the backlog that the intake left: claim, handle, settle with effects."""
    with running("worker", folder / "data"):
        wait_until_settled(folder / "data")
    return span(folder / "data")


def measure_both(folder: Path, count: int, connections: int) -> dict[str, float]:
    """``holdfast up``: intake and work in one process, from the first post to the last effect."""
    with running("up", folder / "data") as gateway:
        intake = generate_load(gateway, count=count, connections=connections)
        wait_until_settled(folder / "data")
    worked = span(folder / "data")
    seconds = worked["finished_at"] - intake["started_at"]
    return {**intake, "events_per_second": count / seconds, "end_to_end_seconds": seconds}


def wait_until_settled(data: Path) -> None:
    """Wait for the backlog to be empty, without getting in its way."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline:
        with sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True) as connection:
            if set(dict(connection.execute(_STATES))) == {"processed"}:
                return
        time.sleep(0.2)
    message = "The backlog was not worked off in time."
    raise RuntimeError(message)


def span(data: Path) -> dict[str, float]:
    """From the first attempt to the last settlement, on the store's clock."""
    with sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True) as connection:
        count, first, last = connection.execute(_SPAN).fetchone()
    seconds = (int(last) - int(first)) / 1000
    return {"events": count, "seconds": seconds, "events_per_second": count / seconds, "finished_at": int(last) / 1000}


def measure_emails(folder: Path, plan: email.Plan) -> dict[str, Any]:
    """Emails, on files of their own."""

    @contextlib.contextmanager
    def sites() -> Iterator[email.Site]:
        yield email.Site(Path(tempfile.mkdtemp(dir=folder)) / "data")

    return email.measure(sites, plan, lambda line: print(line, file=sys.stderr, flush=True))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="events in each run (default 20,000)")
    parser.add_argument("--connections", type=int, default=50, help="connections of the load generator (default 50)")
    parser.add_argument("--emails", type=int, default=3_000, help="emails in the run without a limit (default 3,000)")
    parser.add_argument(
        "--backlog", type=int, default=10_000, help="emails that wait when ten others come (default 10,000)"
    )
    parser.add_argument("--only", choices=_PARTS, nargs="+", default=_PARTS, help="courier events, or emails")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        if "events" in arguments.only:
            apart, together = Path(folder) / "apart", Path(folder) / "together"
            apart.mkdir()
            together.mkdir()
            figures["intake"] = measure_intake(apart, arguments.count, arguments.connections)
            figures["work"] = measure_work(apart)
            figures["up"] = measure_both(together, arguments.count, arguments.connections)
        if "emails" in arguments.only:
            plan = email.Plan(emails=arguments.emails, backlog=arguments.backlog)
            figures["emails"] = measure_emails(Path(folder), plan)
    if arguments.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
    else:
        if "events" in arguments.only:
            show(figures, arguments.connections)
        if "emails" in arguments.only:
            email_report.show(Console(), figures["emails"])
    refused = sum(figures[name]["refused"] for name in ("intake", "up") if name in figures)
    return 1 if refused else 0


def show(figures: dict[str, dict[str, float]], connections: int) -> None:
    """The figures for a person."""
    intake, work, up = figures["intake"], figures["work"], figures["up"]
    table = Table(title=f"Embedded default, {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("what", "per second", "p50", "p99"):
        table.add_column(column, justify="left" if column == "what" else "right")
    table.add_row(
        f"intake alone ({connections} connections, synchronous=FULL)",
        f"{intake['per_second']:,.0f} requests",
        f"{intake['p50_ms']:.1f} ms",
        f"{intake['p99_ms']:.1f} ms",
    )
    table.add_row("worker alone, on a backlog", f"{work['events_per_second']:,.0f} events", "", "")
    table.add_row(
        "up: intake while working",
        f"{up['per_second']:,.0f} requests",
        f"{up['p50_ms']:.1f} ms",
        f"{up['p99_ms']:.1f} ms",
    )
    table.add_row("up: from first post to last effect", f"{up['events_per_second']:,.0f} events", "", "")
    Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
