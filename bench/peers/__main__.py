"""``make bench-peers``: no-op jobs of 500 bytes through Holdfast and other job queues, interleaved, on this machine."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cluster import queues
from bench.machine import machine
from holdfast.cli.servers import ServerMissing

from . import report
from .catalogue import NODE, SYSTEMS, System
from .libraries import Libraries, LibraryMissing
from .rounds import Figures, NotMeasured, Plan, measure
from .servers import Servers

_OURS = ("REDIS_URL", "MONGO_URI", "HOLDFAST_DATA", "HOLDFAST_APP")


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    for name in _OURS:  # this run starts servers of its own, and no other server may get its jobs
        os.environ.pop(name, None)
    # The servers have sessions of their own and would outlive us: a time limit must end them as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = run(arguments)
    if arguments.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
    elif arguments.markdown:
        print(report.markdown(figures))
    else:
        report.show(figures, Console())
    return 0


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All rounds: each system once in each round, and one after the other."""
    systems = [system for system in SYSTEMS if not arguments.only or system.name in arguments.only]
    plan = Plan(arguments.jobs, max(1, arguments.jobs // 10), arguments.seconds)
    libraries = Libraries(arguments.libraries)
    rounds: dict[str, list[Figures]] = {system.name: [] for system in systems}
    reasons: dict[str, str] = {}
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user where we are root
        servers = Servers(folder / "servers", stack)
        (folder / "servers").mkdir(mode=0o755)
        for number in range(1, arguments.rounds + 1):
            for system in systems:
                if system.name in reasons:
                    continue
                try:
                    found = measure(system, servers, libraries, folder, plan)
                except (NotMeasured, LibraryMissing, ServerMissing, RuntimeError, OSError) as error:
                    reasons[system.name] = " ".join(str(error).split())[:300]
                    _tell(f"round {number}: {system.title}: {reasons[system.name]}")
                    continue
                rounds[system.name].append(found)
                _tell(
                    f"round {number}: {system.title}: submit {found['submit_per_second']:,.0f}/s, "
                    f"work {found['work_per_second']:,.0f}/s, both {found['both_per_second']:,.0f}/s, "
                    f"{found['both_cpu_us']:,.0f} us"
                )
    return {
        "machine": facts,
        "load_after": f"{os.getloadavg()[0]:.2f}",
        "plan": {"jobs": plan.jobs, "rounds": arguments.rounds},
        "systems": {system.name: _facts(system, libraries, rounds, reasons) for system in systems},
    }


def _facts(
    system: System, libraries: Libraries, rounds: dict[str, list[Figures]], reasons: dict[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "title": system.title,
        "version": _version(system, libraries),
        "how": system.how,
        "power_loss": system.power_loss,
        "worker_loss": system.worker_loss,
    }
    if rounds[system.name]:
        found["figures"] = report.medians(rounds[system.name])
    else:
        found["reason"] = reasons[system.name]
    return found


def _version(system: System, libraries: Libraries) -> str | None:
    if system is NODE:
        return (queues.node_versions() or {}).get("bullmq")
    if system.library:
        return libraries.version(system.library)
    return importlib.metadata.version("bullmq") if "bullmq" in system.name else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs in each part of a round (default 5,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the median counts (default 3)")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest time of one part (default 120)")
    parser.add_argument("--only", nargs="+", choices=[system.name for system in SYSTEMS], help="some of the systems")
    parser.add_argument("--libraries", type=Path, help="where the libraries are (default .venv-bench)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return parser.parse_args()


def _tell(line: str) -> None:
    """Progress, which is no result."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
