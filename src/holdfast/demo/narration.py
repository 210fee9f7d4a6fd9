"""The narrator: all terminal output of the demo, with pauses for reading."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import responses
from typing import Any, Final

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.output import printable

from .clients import Reply
from .fates import Fate, all_as_expected

_WIDEST: Final = 100
_READING_SECONDS_PER_CHARACTER: Final = 0.009
_INDENT: Final = 3

_STATUS_STYLES: Final[Mapping[str, str]] = {
    "processed": "green",
    "succeeded": "green",
    "closed": "green",
    "failed": "yellow",
    "lost": "yellow",
    "running": "cyan",
    "processing": "cyan",
    "dead_lettered": "red",
    "SENT": "green",
    "COMPLETED": "green",
    "PROCESSING": "cyan",
    "RETRYING": "yellow",
    "FAILED": "red",
    "EXPIRED": "red",
    "SENDING": "cyan",
}


class Narrator:
    """Prints the tour. Text from the server is printed as it is, never as markup."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._console = console
        self._fast = fast
        self._chapter = 0
        self._amid_facts = False
        console.width = min(console.width, _WIDEST)

    # --- the frame ----------------------------------------------------------------------------------------

    def opening(self, *paragraphs: str) -> None:
        """The title and the introduction."""
        body = Text("\n\n".join(paragraphs))
        self._console.print()
        self._console.print(Panel(body, title="[bold]Holdfast[/], the job gateway that never lets go", padding=(1, 2)))
        self._read("".join(paragraphs))

    def chapter(self, title: str) -> None:
        """Begin the next chapter."""
        self._chapter += 1
        self._console.print()
        self._console.rule(f"[bold]{self._chapter}. {title}[/]", align="left", style="blue")
        self._amid_facts = False

    def closing(self, fates: Sequence[Fate], seconds: float) -> None:
        """The table of fates and the result."""
        good = sum(fate.as_expected for fate in fates)
        self._console.print()
        self._console.rule("[bold]What became of everything[/]", align="left", style="blue")
        self._console.print(_fates_table(fates, ascii_only=self._console.options.ascii_only))
        if all_as_expected(fates):
            self._console.print(f"[bold green]All {good} fates are as expected.[/] The tour took {seconds:.0f} s.")
        else:
            self._console.print(f"[bold red]{len(fates) - good} of {len(fates)} fates are not as expected.[/]")

    # --- the parts of a chapter ---------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A paragraph, and a pause for reading it."""
        if self._amid_facts:
            self._console.print()
        self._indented(Text(text))
        self._amid_facts = False
        self._read(text)

    def request(self, what: str) -> None:
        """A request that the demo sends."""
        self._indented(Text("-> ", style="bold blue") + Text(what, style="bold"))

    def reply(self, reply: Reply, *fields: str) -> None:
        """The answer: the status, and these fields of the body."""
        line = Text("<- ", style="bold blue")
        line.append(f"{reply.status} {responses.get(reply.status, '')}", style=_style_of_status(reply.status))
        for field in fields:
            line.append(f"  {field}: ", style="dim")
            line.append(_plain(reply.body.get(field)))
        self._indented(line)

    def command(self, line: str) -> None:
        """The same step as a command line: never wrapped, so that it can be copied."""
        text = Text(" " * _INDENT) + Text("or ", style="bold blue") + Text(line, style="cyan")
        self._console.print(text, soft_wrap=True)

    def typed(self, line: str) -> None:
        """A command that the demo runs: never wrapped, so that it can be copied."""
        text = Text(" " * _INDENT) + Text("$ ", style="bold blue") + Text(line, style="cyan")
        self._console.print(text, soft_wrap=True)
        self._amid_facts = True

    def event(self, line: str, *, alarming: bool = False) -> None:
        """Something that happens outside HTTP."""
        mark = Text("!! ", style="bold red") if alarming else Text("** ", style="bold green")
        self._indented(mark + Text(line, style="bold"))

    def facts(self, facts: Mapping[str, object]) -> None:
        """A few names and values."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in facts.items():
            table.add_row(name, _coloured(_plain(value)))
        self._indented(table, _INDENT * 2)

    def beside(self, left: tuple[str, str], right: tuple[str, str]) -> None:
        """Two texts next to each other, each under its heading."""
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for heading, _ in (left, right):
            table.add_column(heading)
        table.add_row(*(Text("\n".join(map(printable, text.splitlines()))) for _, text in (left, right)))
        self._indented(table)

    def document(self, document: Mapping[str, object]) -> None:
        """A whole JSON document."""
        for line in json.dumps(document, indent=2, ensure_ascii=False).splitlines():
            self._indented(Text(printable(line)), _INDENT * 2)

    def logged(self, line: str) -> None:
        """A line of the server's log, as it is."""
        self._indented(Text(printable(line), style="dim"), _INDENT * 2)

    def settings(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Settings that differ from their defaults."""
        table = Table(box=None, padding=(0, 2), header_style="dim")
        table.add_column("setting")
        table.add_column("here", justify="right")
        table.add_column("default", justify="right")
        for row in rows:
            table.add_row(*row)
        self._indented(table)
        self._read("".join(name for name, _, _ in rows))

    def trouble(self, message: str, log_tail: str) -> None:
        """A failure of the server: a message, and the end of its log."""
        self._console.print(Text(message, style="bold red"))
        if log_tail:
            shown = Text("\n".join(map(printable, log_tail.splitlines())))
            self._console.print(Panel(shown, title="the end of its log", border_style="red"))

    def plain(self, line: str, *, style: str = "") -> None:
        """A line to copy: never wrapped."""
        self._console.print(Text(line, style=style), soft_wrap=True)

    # --- watching -----------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[Callable[[RenderableType], None]]:
        """A display that changes over time. Without a terminal, only its last state is printed."""
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                yield lambda renderable: live.update(_padded(renderable, _INDENT), refresh=True)
            self._amid_facts = True
            return
        last: RenderableType = Text()

        def remember(renderable: RenderableType) -> None:
            nonlocal last
            last = renderable

        try:
            yield remember
        finally:
            self._indented(last)

    # --- inside -------------------------------------------------------------------------------------------

    def _indented(self, renderable: RenderableType, by: int = _INDENT) -> None:
        self._console.print(_padded(renderable, by))
        self._amid_facts = True

    def _read(self, text: str) -> None:
        if not self._fast:
            time.sleep(len(text) * _READING_SECONDS_PER_CHARACTER)


def _padded(renderable: RenderableType, by: int) -> Padding:
    return Padding(renderable, (0, 0, 0, by), expand=False)


def attempts_of(entry: Mapping[str, Any]) -> RenderableType:
    """The attempts of an event, when each began, and the time of the next attempt."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("attempt", "began", "outcome", "error"):
        table.add_column(heading, justify="right" if heading in {"attempt", "began"} else "left")
    history = entry.get("attemptHistory") or []
    began = [datetime.fromisoformat(each["startedAt"]) for each in history]
    for each, at in zip(history, began, strict=True):
        since = f"+{(at - began[0]).total_seconds():.1f} s"
        table.add_row(str(each["attempt"]), since, _coloured(each["outcome"]), Text(_plain(each["errorCode"], "")))
    now = Text("   ") + _coloured(_plain(entry.get("status"), "waiting"))
    if wait := _until(entry.get("nextAttemptAt")):
        now.append(f", next attempt in {wait:.1f} s", style="dim")
    return Group(table, now) if history else now


def status_of_email(email: Mapping[str, Any]) -> RenderableType:
    """The status of an email, its last error, and the time until it expires."""
    status = _plain(email.get("status"))
    line = Text("   ") + _coloured(status)
    if status in {"PENDING", "ENQUEUED", "RETRYING"} and (left := _until(email.get("deadline"))) is not None:
        line.append(f", may be sent for another {left:.1f} s", style="dim")
    if status not in {"RETRYING", "FAILED"}:
        return line
    why = f"{_plain(email.get('lastErrorCode'))}: {_plain(email.get('lastErrorMessage'))}"
    return Group(line, _padded(Text(f"attempt {_plain(email.get('attempt'))}: {why}", style="dim"), _INDENT * 2))


def stages_of(views: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The stages of a document, when each was reached, and the progress of the reading."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("since", "status", "stage", "progress", "pages"):
        table.add_column(heading, justify="right" if heading in {"since", "progress"} else "left")
    for view in views:
        pages = "" if view.get("pages") is None else f"{view['pages_done']} of {view['pages']}"
        progress = f"{view['progress']:.0f} %"
        table.add_row(f"+{view['since']:.1f} s", _coloured(view["status"]), _plain(view["stage"]), progress, pages)
    return table


def status_of_document(view: Mapping[str, Any]) -> RenderableType:
    """The status of a document, and the error of its last failed attempt."""
    line = Text("   ") + _coloured(_plain(view.get("status")))
    line.append(f", attempt {_plain(view.get('attempts'))} of {_plain(view.get('max_attempts'))}", style="dim")
    error = view.get("error")
    if not error:
        return line
    why = f"{_plain(error.get('error_type'))}, {_plain(error.get('code'))}: {_plain(error.get('message'))}"
    return Group(line, _padded(Text(why, style="dim"), _INDENT * 2))


def _fates_table(fates: Sequence[Fate], *, ascii_only: bool) -> Table:
    table = Table(header_style="bold", box=ROUNDED)
    for heading in ("", "event", "expected", "actual"):
        table.add_column(heading)
    good, bad = ("ok", "NO") if ascii_only else ("✓", "✗")
    for fate in fates:
        tick = Text(good, style="bold green") if fate.as_expected else Text(bad, style="bold red")
        table.add_row(tick, Text(fate.event), Text(fate.expected), Text(fate.actual, "" if fate.as_expected else "red"))
    return table


def _until(instant: str | None) -> float | None:
    if instant is None:
        return None
    return max(0.0, (datetime.fromisoformat(instant) - datetime.now(UTC)).total_seconds())


def _coloured(word: str) -> Text:
    return Text(word, style=_STATUS_STYLES.get(word, ""))


def _style_of_status(status: int) -> str:
    return "bold green" if status < HTTPStatus.BAD_REQUEST else "bold yellow"


def _plain(value: object, nothing: str = "-") -> str:
    if value is None:
        return nothing
    return str(value).lower() if isinstance(value, bool) else str(value)
