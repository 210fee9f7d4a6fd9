"""The narrator: all terminal output of the demo, with pauses for reading."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from rich.box import ROUNDED
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.terminal import printable

_WIDEST: Final = 100
_READING_SECONDS_PER_CHARACTER: Final = 0.009
_MARKS: Final = {"**": "bold green", "!!": "bold red"}
_STATUSES: Final[Mapping[str, str]] = {
    "green": "processed|succeeded|closed|SENT|COMPLETED",
    "cyan": "PROCESSING|SENDING",
    "yellow": "failed|lost|RETRYING",
    "red": "dead_lettered|FAILED|EXPIRED",
}


class Narrator:
    """Prints the tour. Text from the server is printed as it is, never as markup."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._console = console
        self._pause = 0.0 if fast else _READING_SECONDS_PER_CHARACTER
        self._amid_facts = False
        console.width = min(console.width, _WIDEST)

    def opening(self, text: str) -> None:
        """The title and the introduction."""
        self._console.print()
        self._console.print(Panel(text, title="[bold]Holdfast[/], the job gateway that never lets go", padding=(1, 2)))
        time.sleep(len(text) * self._pause)

    def heading(self, title: str) -> None:
        """The title of a chapter."""
        self._console.print()
        self._console.rule(f"[bold]{title}[/]", align="left", style="blue")
        self._amid_facts = False

    def say(self, text: str) -> None:
        """A paragraph, and a pause for reading it. Its line breaks are those of the source code."""
        text = " ".join(text.split())
        if self._amid_facts:
            self._console.print()
        self.show(Text(text), 3)
        self._amid_facts = False
        time.sleep(len(text) * self._pause)

    def line(self, mark: str, text: str | Text) -> None:
        """A request (``->``), its answer (``<-``), or an event outside HTTP (``**``, alarming: ``!!``)."""
        marked = Text(f"{mark} ", _MARKS.get(mark, "bold blue"))
        self.show(marked.append_text(Text(text, "bold") if isinstance(text, str) else text), 3)

    def command(self, mark: str, line: str) -> None:
        """A command line that the demo runs (``$``), or that does the same as the last request (``or``)."""
        self.plain(Text.assemble("   ", (f"{mark} ", "bold blue"), (line, "cyan")))
        self._amid_facts = True

    def facts(self, facts: Mapping[str, object]) -> None:
        """A few names and values."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in facts.items():
            table.add_row(name, shown(value))
        self.show(table)

    def show(self, value: object, indent: int = 6) -> None:
        """Anything else, indented."""
        renderable: RenderableType = value if isinstance(value, Table | Text) else shown(value)
        self._console.print(Padding(renderable, (0, 0, 0, indent), expand=False))
        self._amid_facts = True

    def plain(self, line: str | Text = "", style: str = "") -> None:
        """A line to copy: never wrapped."""
        self._console.print(Text(line, style) if isinstance(line, str) else line, soft_wrap=True)

    def trouble(self, message: str, log: str = "") -> None:
        """Something went wrong; and perhaps the end of a log."""
        self._console.print(Text(message, "bold red"))
        if log:
            self._console.print(Panel(shown(log), title="the end of its log", border_style="red"))

    def closing(self, fates: Sequence[tuple[str, str, str]], seconds: float) -> bool:
        """The table of fates, each with its name, the expected and the actual fate; and whether all are as expected."""
        self.heading("What became of everything")
        table = Table("", "event", "expected", "actual", header_style="bold", box=ROUNDED)
        for column in table.columns:
            column.overflow = "fold"
        good, bad = ("ok", "NO") if self._console.options.ascii_only else ("✓", "✗")
        for name, expected, actual in fates:
            tick, style = (Text(good, "bold green"), "") if actual == expected else (Text(bad, "bold red"), "red")
            table.add_row(tick, Text(name), Text(expected), Text(actual, style))
        self._console.print(table)
        wrong = sum(expected != actual for _, expected, actual in fates)
        result = f"[bold red]{wrong} of {len(fates)} fates are not as expected.[/]"
        if fates and not wrong:
            result = f"[bold green]All {len(fates)} fates are as expected.[/] The tour took {seconds:.0f} s."
        self._console.print(result)
        return bool(fates) and not wrong


def shown(value: object) -> Text:
    """A value as text, with colours for statuses. Invisible characters are shown as escapes."""
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    line = Text("\n".join(map(printable, text.splitlines())))
    for style, words in _STATUSES.items():
        line.highlight_regex(rf"\b(?:{words})\b", style)
    return line
