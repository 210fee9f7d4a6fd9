"""How far the reading of a document has come, for a person who watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from .output import printable
from .tables import console


class Course:
    """A bar that is told what is being done, and how much of it is done."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("Starting", total=None, told="")

    def stage(self, what: str) -> None:
        """What is being done now."""
        self._bar.update(self._task, description=printable(what).capitalize())

    def reached(self, done: float, total: float | None, told: str) -> None:
        """How much is done, of how much, and that in words."""
        self._bar.update(self._task, completed=done, total=total, told=told)


@contextmanager
def course(*, quiet: bool = False) -> Iterator[Course]:
    """A bar on standard error, where a person is watching; for anybody else, nothing at all."""
    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with _bar(columns, quiet=quiet) as bar:
        yield Course(bar)


@contextmanager
def sending(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Likewise, for bytes that go out: the block tells how many have gone."""
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
