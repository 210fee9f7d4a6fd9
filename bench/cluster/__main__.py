"""``make bench-cluster``: intake, work, both, the queue beside Node's, and emails, on one Redis and one MongoDB."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import email
from bench.machine import machine

from . import ledger, queues, report, system
from .places import Place, a_place

_PARTS = ("system", "queues", "ledger", "emails")


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    # The servers have sessions of their own and would outlive us: a time limit must end them as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        facts = machine()
        with a_place(folder / "servers") as place:
            figures = {"machine": facts, **_measure(arguments, place, folder)}
    if arguments.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
    else:
        report.show(figures, connections=arguments.connections)
    refused = sum(run.get("refused", 0) for run in figures.get("system", {}).values())
    return 1 if refused else 0


def _measure(arguments: argparse.Namespace, place: Place, folder: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {"versions": _versions(place)}
    if "system" in arguments.only:
        plan = system.Plan(arguments.count, arguments.connections, arguments.workers, arguments.rounds)
        figures["system"] = system.measure(place, folder, plan, _tell)
    if "queues" in arguments.only:
        node = figures["versions"]["node"] is not None
        figures["queues"] = queues.race(place, jobs=arguments.jobs, runs=arguments.runs, node=node, tell=_tell)
    if "ledger" in arguments.only:
        figures["ledger"] = ledger.measure(
            place, events=arguments.jobs, runs=arguments.rounds, against=arguments.against, tell=_tell
        )
    if "emails" in arguments.only:
        figures["emails"] = _emails(place, folder, email.Plan(emails=arguments.emails, backlog=arguments.backlog))
    return figures


def _emails(place: Place, folder: Path, plan: email.Plan) -> dict[str, Any]:
    servers = {"redis": place.redis_pid, "mongod": place.mongo_pid}
    keys = email.keys_for_emails()

    @contextlib.contextmanager
    def sites() -> Iterator[email.Site]:
        with system.a_stage(place, folder) as stage:
            yield email.Site(stage.data, {**stage.settings, **keys}, servers)

    return email.measure(sites, plan, _tell)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-cluster", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="events in each run (default 20,000)")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs that do nothing in each run (default 10,000)")
    parser.add_argument("--connections", type=int, default=50, help="connections of the load generator (default 50)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes beside the API (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of the gateway; the median counts (default 3)")
    parser.add_argument("--runs", type=int, default=7, help="runs of each broker; the median counts (default 7)")
    parser.add_argument("--emails", type=int, default=3_000, help="emails in the run without a limit (default 3,000)")
    parser.add_argument(
        "--backlog", type=int, default=10_000, help="emails that wait when ten others come (default 10,000)"
    )
    parser.add_argument("--only", choices=_PARTS, nargs="+", default=_PARTS, help="some of the parts")
    parser.add_argument(
        "--against", type=Path, help="a checkout of another version, which takes turns with this one (ledger)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


def _versions(place: Place) -> dict[str, Any]:
    versions: dict[str, Any] = dict(place.facts())
    versions |= {"bullmq": _version("bullmq"), "redis-py": _version("redis"), "pymongo": _version("pymongo")}
    versions["node"] = queues.node_versions()
    return versions


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _tell(line: str) -> None:
    """Progress, which is no result."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
