"""Results on standard output: JSON, lines, facts, tables, lists. Messages about them go to standard error.

Every start of the program imports this module, so it imports nothing heavy: rich comes with the first table.
"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from holdfast.contracts.ledger import Attempt
    from holdfast.contracts.queries import Slice

Item = TypeVar("Item")

_WIDTH_IN_A_FILE: Final = 160
_NARROWEST: Final = 16
"""A column with longer cells is wrapped to this width at least."""
_GAP: Final = 3
_SMALL_GAP: Final = 2
"""Between the columns; the small gap where the terminal is narrow."""

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


# --- lines --------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text with every invisible character written as an escape.

    Keys and payloads come from outside. The terminal must show an escape sequence in them, not obey it.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_json(document: object, *, one_line: bool = False) -> None:
    """Print JSON on standard output, in ASCII: every terminal, locale and parser can read it."""
    sys.stdout.write(json_module.dumps(document, indent=None if one_line else 2) + "\n")
    sys.stdout.flush()


def print_line(line: str) -> None:
    """Print one line on standard output, and flush it, also into a pipe."""
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """Print a message for people on standard error, where no script reads it."""
    sys.stderr.write(printable(message) + "\n")


# --- lists, and single items --------------------------------------------------------------------------------------


def show_list(
    found: Slice[Item] | Sequence[Item],
    row: Callable[[Item], Mapping[str, object]],
    document: Callable[[Item], object],
    *,
    json: bool,
    whole: Sequence[str] = (),
    empty: str = "",
    total: int | None = None,
) -> None:
    """Show a list: as JSON, or as a table with a row for each item, or the sentence ``empty`` instead of a table.

    The names in a row are the titles of the columns. Columns in ``whole`` are never wrapped. A page of a longer list
    (:class:`Slice`) also says how to get the next page; ``total`` is the length of the whole list, if it is known.
    """
    from holdfast.contracts.queries import Slice  # noqa: PLC0415 - see above

    items, following = (found.items, found.next) if isinstance(found, Slice) else (found, None)
    if json:
        documents = [document(each) for each in items]
        count = {} if total is None else {"total": total}
        print_json({"items": documents, **count, "next": following} if isinstance(found, Slice) else documents)
    elif not items:
        say(empty)
    else:
        rows = [row(each) for each in items]
        show_table(list(rows[0]), [list(each.values()) for each in rows], whole=whole)
    if following and not json:
        more = "There are more" if total is None else f"{len(items)} of {total}; the next ones"
        say(f"{more}: --cursor {following}")


def show_item(
    document: object,
    facts: Mapping[str, object],
    *,
    json: bool,
    attempts: Iterable[Attempt] | None = None,
    sections: Mapping[str, Callable[[], None]] | None = None,
) -> None:
    """Show one item: as JSON, or its facts, then its attempts, then each section under its title."""
    if json:
        print_json(document)
        return
    show_facts(facts)
    if attempts is not None:
        show_attempts(attempts)
    for title, show in (sections or {}).items():
        heading(title)
        show()


def require_item(found: Item | None, what: str, listing: str) -> Item:
    """The item. If there is none, the command ends with exit code 1, and names the command that lists such items."""
    from holdfast.contracts.errors import NotFound  # noqa: PLC0415 - see above

    if found is None:
        message = f"There is no such {what}; `{listing}` shows them."
        raise NotFound(message)
    return found


def show_attempts(attempts: Iterable[Attempt]) -> None:
    """The history of a job's attempts under a title: see :func:`attempt_table`."""
    heading("Attempts")
    attempt_table(attempts)


def attempt_table(attempts: Iterable[Attempt]) -> None:
    """A job's attempts as a table, and below it where each error was raised. Equal tracebacks are shown once."""
    attempts = list(attempts)
    if not attempts:
        show_facts({"none": "No worker has claimed it."})
        return
    show_table(
        ("#", "outcome", "error", "message", "started", "took"),
        [
            (each.attempt, each.outcome, each.error_code, each.error_message, moment(each.started_at), _took(each))
            for each in attempts
        ],
        whole=("outcome", "started", "took"),
    )
    raised: dict[str, list[str]] = {}
    for each in attempts:
        if each.traceback:
            raised.setdefault(each.traceback, []).append(str(each.attempt))
    for traceback, numbers in raised.items():
        which = f"attempts {', '.join(numbers)}" if len(numbers) > 1 else f"attempt {numbers[0]}"
        console().print(f"\nWhere {which} failed:", style="dim")
        lines = traceback.rstrip().splitlines()
        console().print("\n".join(f"  {printable(line)}" for line in lines), soft_wrap=True)


def _took(attempt: Attempt) -> str | None:
    if attempt.finished_at is None:
        return None
    return f"{(attempt.finished_at - attempt.started_at).total_seconds():.3f} s"


def moment(instant: datetime | None) -> str | None:
    """An instant for people: to the second, in UTC."""
    return None if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}Z"


# --- tables and texts for people ----------------------------------------------------------------------------------


def console(stream: TextIO | None = None) -> Console:
    """A console for tables on standard output, or on another stream. Files and pipes get a fixed width."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = stream or sys.stdout
    width = None if stream.isatty() else _WIDTH_IN_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()) -> None:
    """Print a table. Columns in ``whole`` are never wrapped, because people copy from them.

    On a terminal that is too narrow, each row is a line with the ``whole`` columns, and below it the other columns.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - see above
    from rich.cells import cell_len  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above

    cells = [[_cell(value) for value in row] for row in rows]
    width, gaps, natural, least = console().width, len(columns) - 1, 0, 0
    for title, *values in zip(columns, *cells, strict=True):
        widest = max(cell_len(each) for each in (*values, *title.split(), ""))
        natural += widest
        least += widest if title in whole else min(widest, _NARROWEST)
    if width < least + _SMALL_GAP * gaps:
        _show_in_two_lines(columns, cells, whole)
        return
    tight = width < natural + _GAP * gaps
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=tight)
    for column in columns:
        table.add_column(column, no_wrap=column in whole, overflow="fold")
    _fill(table, cells)
    console().print(table)


def _show_in_two_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]) -> None:
    from rich.padding import Padding  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    target = console()
    for row in rows:
        named = list(zip(columns, row, strict=True))
        first = [_styled(cell) for title, cell in named if title in whole and cell]
        rest = "; ".join(f"{title}: {cell}".removeprefix(": ") for title, cell in named if title not in whole and cell)
        target.print(Text(" " * _SMALL_GAP).join(first))
        if rest:
            target.print(Padding(Text(rest), (0, 0, 0, 2)))


def show_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one per line. Values that are None are left out."""
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    _fill(table, ((name, value) for name, value in facts.items() if value is not None))
    console().print(table)


def show_document(document: object) -> None:
    """Print JSON for people: letters of every script as they are, invisible characters as escapes."""
    text = json_module.dumps(document, indent=2, ensure_ascii=False)
    console().print("\n".join(printable(line) for line in text.splitlines()), soft_wrap=True)


def heading(text: str) -> None:
    """Print a title above a table."""
    console().print(f"\n{printable(text)}", style="bold")


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if it is a terminal. The block calls it with the number done and the total."""
    from rich.progress import (  # noqa: PLC0415 - see above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _fill(table: Table, rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        table.add_row(*(_styled(_cell(value)) for value in row))


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


def _styled(cell: str) -> Text:
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(cell, style=_STYLES.get(cell, ""))
