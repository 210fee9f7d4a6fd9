"""The table of ``make bench-peers``: for a person, and as Markdown for docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

_RATES = ("submit_per_second", "work_per_second", "both_per_second")
_COLUMNS = ("system", "submit/s", "no-op jobs/s", "submit -> done, jobs/s", "CPU us/job", "loss of power")


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The median of each figure, and the range of the rates."""
    result: dict[str, Any] = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    result["range"] = {
        name: [min(each[name] for each in rounds), max(each[name] for each in rounds)] for name in _RATES
    }
    result["rounds"] = len(rounds)
    return result


def show(figures: Mapping[str, Any], console: Console) -> None:
    """For a person."""
    facts = figures["machine"]
    plan = figures["plan"]
    table = Table(
        title=f"{plan['jobs']:,} jobs of 500 bytes, {plan['rounds']} rounds, interleaved; {facts['processor']}; "
        f"load {facts['load_before']} before, {figures['load_after']} after",
        show_lines=True,
    )
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in {_COLUMNS[0], _COLUMNS[-1]} else "right")
    for row in rows(figures):
        table.add_row(*row)
    console.print(table)


def rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The lines of the table. A system without figures has its reason instead."""
    lines = []
    for system in figures["systems"].values():
        title = " ".join(filter(None, (system["title"], system.get("version"))))
        if "reason" in system:
            lines.append((title, "-", "-", "-", "-", f"not measured: {system['reason']}"))
            continue
        found = system["figures"]
        rates = (f"{found[name]:,.0f} ({_range(found['range'][name])})" for name in _RATES)
        lines.append((title, *rates, f"{found['both_cpu_us']:,.0f}", system["power_loss"]))
    return lines


def markdown(figures: Mapping[str, Any]) -> str:
    """For docs/performance.md."""
    lines = [_COLUMNS, ("---", *("---:",) * 4, "---"), *rows(figures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _range(ends: Sequence[float]) -> str:
    return f"{ends[0]:,.0f}-{ends[1]:,.0f}"
