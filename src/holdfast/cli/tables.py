"""Results for people: tables, facts, JSON, a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .output import printable

_WIDTH_IN_A_FILE: Final = 160

_STYLES: Final[Mapping[str, str]] = {
    "processed": "green",
    "closed": "green",
    "OK": "green",
    "received": "cyan",
    "processing": "cyan",
    "replayed": "cyan",
    "reviewed": "blue",
    "failed": "yellow",
    "pending": "yellow",
    "expired": "yellow",
    "lost": "yellow",
    "WARN": "yellow",
    "dead_lettered": "red",
    "FAIL": "bold red",
}


def console(stream: TextIO | None = None) -> Console:
    """A console for tables on standard output, or on another stream. Files and pipes get a fixed width."""
    stream = stream or sys.stdout
    width = None if stream.isatty() else _WIDTH_IN_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()) -> None:
    """Print a table. Columns in ``whole`` are never wrapped, because people copy from them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in whole, overflow="fold")
    _fill(table, rows)
    console().print(table)


def show_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one per line. Values that are None are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    _fill(table, ((name, value) for name, value in facts.items() if value is not None))
    console().print(table)


def show_document(document: object) -> None:
    """Print JSON for people: letters of every script as they are, invisible characters as escapes."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    console().print("\n".join(printable(line) for line in text.splitlines()), soft_wrap=True)


def heading(text: str) -> None:
    """Print a title above a table."""
    console().print(f"\n{printable(text)}", style="bold")


def moment(instant: datetime | None) -> str | None:
    """An instant for people: to the second, in UTC."""
    return None if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}Z"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if it is a terminal. The block calls it with the number done and the total."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _fill(table: Table, rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        cells = ["" if value is None else printable(str(value)) for value in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
