"""Progress bars for reading and sending documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from holdfast.terminal import console, printable


class ReadingBar:
    """A progress bar with the current stage and the progress of a document."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("Starting", total=None, words="")

    def stage(self, what: str) -> None:
        """Show the current stage."""
        self._bar.update(self._task, description=printable(what).capitalize())

    def reached(self, done: float, total: float | None, words: str) -> None:
        """Show the progress, as a bar and in words."""
        self._bar.update(self._task, completed=done, total=total, words=words)


@contextmanager
def reading_bar(*, quiet: bool = False) -> Iterator[ReadingBar]:
    """A bar on standard error, if it is a terminal; otherwise nothing is shown."""
    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
    )
    with _bar(columns, quiet=quiet) as bar:
        yield ReadingBar(bar)


@contextmanager
def sending(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar for bytes that are sent. The block calls it with the number of bytes sent."""
    with _bar((TextColumn("{task.description}"), BarColumn(), DownloadColumn()), quiet=False) as bar:
        task = bar.add_task(printable(what), total=size)
        yield lambda done: bar.update(task, completed=done)


def pages(done: int, total: int) -> str:
    """A count of pages, in words."""
    return f"{done} of {total} page{'' if total == 1 else 's'}"


def sound(done: float, total: float | None) -> str:
    """A length of sound, in words."""
    return f"{_clock(done)} of {_clock(total)}" if total is not None else _clock(done)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _bar(columns: tuple[Any, ...], *, quiet: bool) -> Progress:
    return Progress(*columns, console=console(sys.stderr), transient=True, disable=quiet or not sys.stderr.isatty())
