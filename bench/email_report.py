"""The figures about emails for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from .email import LIMIT

Figures = Mapping[str, Any]


def show(console: Console, emails: Mapping[str, Figures]) -> None:
    """Print them."""
    table = Table(title="Emails, to a mail server on this machine", title_justify="left", caption_justify="left")
    for column in ("what", "measured", "aim", "processor time, us/email"):
        table.add_column(column)
    for name, run in emails.items():
        if name.startswith("unlimited"):
            table.add_row(
                f"no limit, {_workers(run)} on a backlog",
                f"{run['per_second']:,.0f}/s",
                "",
                ", ".join(f"{who} {used:.0f}" for who, used in run["cpu_us_per_email"].items()),
            )
    limit, fairness = emails["limit"], emails["fairness"]
    table.add_row(
        f"limit of {LIMIT}/s, {_workers(limit)}: the fullest second", f"{limit['most_in_a_second']}", f"<= {LIMIT}"
    )
    table.add_row(
        f"limit of {LIMIT}/s, {_workers(limit)}: used of it", f"{100 * limit['share_of_limit']:.0f} %", ">= 90 %"
    )
    table.add_row(
        f"ten emails beside {fairness['backlog']:,} of another tenant: the last of them",
        f"after {fairness['seconds']:.1f} s and {fairness['others_before_the_last']} others",
        "seconds",
    )
    table.caption = (
        "Counted at the server. No limit: from the first message to the last. The limit: all seconds, whenever they "
        f"begin, and the mean rate after the first {LIMIT} messages. Emails of about 1 kB of HTML."
    )
    console.print(table)


def _workers(run: Figures) -> str:
    return "one worker" if run["workers"] == 1 else f"{run['workers']} workers"
