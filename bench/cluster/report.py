"""The figures for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import email_report

from .queues import BATCH, CONCURRENCY, KEEP, PIPELINES

Figures = Mapping[str, Any]

_WIDTH = 124
"""Of a page that is no terminal."""

AIMS = {
    "intake": "3,000/s, p99 < 50 ms",
    "work": "4,000/s",
    "noop": "Node's",
}


def show(figures: Figures, *, connections: int) -> None:
    """Print everything."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    _show_machine(console, figures)
    if "system" in figures:
        _show_system(console, figures["system"], connections)
    if "queues" in figures:
        _show_queues(console, figures["queues"])
    if "ledger" in figures:
        _show_ledger(console, figures["ledger"])
    if "emails" in figures:
        email_report.show(console, figures["emails"])


def _show_machine(console: Console, figures: Figures) -> None:
    machine, versions = figures["machine"], figures["versions"]
    node = versions["node"]
    for line in (
        f"Machine: {machine['processor']}, {machine['system']}; load average before the run: {machine['load_before']}.",
        f"Servers: {versions['redis']}; {versions['mongo']}.",
        f"Clients: Python {machine['python']}, redis-py {versions['redis-py']}, pymongo {versions['pymongo']}, "
        f"PyPI bullmq {versions['bullmq']}; "
        + (f"Node {node['node']}, npm bullmq {node['bullmq']}." if node else "Node is not installed."),
        "All of them, and the load generator, share this machine: what else runs on it changes the figures.",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def _show_system(console: Console, system: Figures, connections: int) -> None:
    intake, work, both = system["intake"], system["work"], system["both"]
    table = _table("The gateway", "p50", "p99", "aim", "processor time, us/event")
    table.add_row(
        f"intake: api, {connections} connections",
        f"{intake['per_second']:,.0f}",
        _range(intake),
        f"{intake['p50_ms']:.1f} ms",
        f"{intake['p99_ms']:.1f} ms",
        f">= {AIMS['intake']}",
        _cpu(intake),
    )
    table.add_row(
        "work: one worker, on a backlog",
        f"{work['per_second']:,.0f}",
        _range(work),
        "",
        "",
        f">= {AIMS['work']}",
        _cpu(work),
    )
    table.add_row(
        f"both: api and {both['workers']:.0f} workers",
        f"{both['per_second']:,.0f}",
        _range(both),
        f"{both['p50_ms']:.1f} ms",
        f"{both['p99_ms']:.1f} ms",
        "",
        _cpu(both),
    )
    table.caption = (
        f"Events per second, median of {intake['rounds']} rounds. Signed courier events of about 500 bytes with "
        "distinct keys, from a load generator in a process of its own. intake: answered after a journaled majority "
        "commit and the publishing. work: from the worker's readiness to the last commit of effects and ledger in one "
        "transaction. both: from the first post to the last effect; p50 and p99 are the posts'."
    )
    console.print(table)


def _show_queues(console: Console, queues: Figures) -> None:
    table = _table("The queue alone", "aim", "client us/job", "Redis us/job")
    rows = [
        ("work", "ours", f"work: our broker, {PIPELINES} pipelines of {BATCH}", f">= {AIMS['noop']}"),
        ("work", "node", f"work: Node's Worker, concurrency {CONCURRENCY}", ""),
        ("work", "stock", f"work: stock Python Worker, concurrency {CONCURRENCY}", ""),
        ("add", "ours", f"add: our broker, batches of {BATCH}", ""),
        ("add", "node", f"add: Node's addBulk, batches of {BATCH}", ""),
    ]
    for part, name, label, aim in rows:
        run = queues[part].get(name)
        if run is None:
            table.add_row(label, "not installed")
            continue
        table.add_row(
            label,
            f"{run['per_second']:,.0f}",
            _range(run),
            aim,
            f"{run['cpu_us_per_job']:.0f}",
            f"{run['redis_us_per_job']:.0f}",
        )
    table.caption = (
        f"Jobs per second, median of {queues['work']['ours']['runs']} runs, which take turns on "
        f"one Redis. Jobs of about 500 bytes that do nothing, the last {KEEP:,} completed ones kept, for all alike. "
        "One process each; the clock starts when it is warm and connected, and stops when Redis has finished the "
        "last job. us/job is processor time."
    )
    console.print(table)


def _show_ledger(console: Console, ledger: Figures) -> None:
    table = Table(title="The ledger alone", title_justify="left", caption_justify="left")
    for column in ("what", "mongod us/event", "range", "client us/event", "commands of a batch"):
        table.add_column(column, justify="left" if column.startswith(("what", "commands")) else "right")
    for version, steps in ledger.items():
        for step, run in steps.items():
            known = run["mongod_us"] is not None
            table.add_row(
                f"{step} ({version})",
                f"{run['mongod_us']:.0f}" if known else "unknown",
                f"{run['lowest']:.0f} to {run['highest']:.0f}" if known else "",
                f"{run['client_us']:.0f}",
                ", ".join(f"{name} {count:g}" for name, count in run["commands"].items()),
            )
    table.caption = (
        f"Processor time, medians. Courier events of about 500 bytes in batches of {BATCH}, one batch after another, "
        "without a queue and an API: what does not depend on how busy the machine is."
    )
    console.print(table)


def _table(title: str, *more: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("what")
    for column in ("median", "range", *more):
        left = column.startswith("processor")
        table.add_column(column, justify="left" if left else "right", no_wrap=not left)
    return table


def _range(run: Figures) -> str:
    return f"{run['lowest']:,.0f} to {run['highest']:,.0f}"


def _cpu(run: Figures) -> str:
    return ", ".join(f"{name} {used:.0f}" for name, used in run["cpu_us_per_event"].items())
