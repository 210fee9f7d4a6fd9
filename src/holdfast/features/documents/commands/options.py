"""Shared parts of the commands that read files: options, how the text is printed, and progress bars."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from holdfast.features.documents.contract import LANGUAGE, JobType
from holdfast.features.documents.engines import EngineName
from holdfast.features.documents.failures import kind_of
from holdfast.terminal import REFUSED, Stop, console, printable, say


class Format(StrEnum):
    """The formats of the output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SRT = "srt"
    VTT = "vtt"


Engine = Annotated[
    EngineName | None,
    typer.Option("--engine", help="The engine that reads the file; otherwise DOCUMENT_ENGINE.", show_default=False),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="LANGUAGE",
        help="The language of the content, such as pt; otherwise DOCUMENT_LANGUAGE, or it is detected.",
        show_default=False,
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse a damaged PDF, instead of reading what can be read with warnings."),
]

_FILES: Final = {
    Format.TEXT: "text.txt",
    Format.JSON: "result.json",
    Format.MARKDOWN: "document.md",
    Format.SRT: "transcript.srt",
    Format.VTT: "transcript.vtt",
}
_ONLY: Final = {
    Format.MARKDOWN: (JobType.OCR, "PDFs"),
    Format.SRT: (JobType.TRANSCRIPTION, "recordings"),
    Format.VTT: (JobType.TRANSCRIPTION, "recordings"),
}
# A terminal obeys these characters, or changes the order of the text after them. A form feed is only a new line.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0d-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def output_file(form: Format, job_type: JobType) -> str:
    """The name of the output file with this format. Raises :class:`Stop` if such a job has no such file."""
    only, words = _ONLY.get(form, (job_type, ""))
    if only is not job_type:
        message = f"--format {form.value} is for {words} only."
        raise Stop(message)
    return _FILES[form]


def require_language(language: str | None) -> None:
    """Raise :class:`Stop` if this is not a language code."""
    if language is not None and re.fullmatch(LANGUAGE, language) is None:
        message = "--language takes a language such as pt, en or pt-BR."
        raise Stop(message)


def failed(message: str, code: str, error_type: str | None = None, detail: str | None = None) -> Stop:
    """The error of a command whose file could not be read."""
    kind = error_type or kind_of(code).error_type.value
    return Stop(f"{message.rstrip('.')} ({code}, {kind})", *([detail] if detail else []), code=REFUSED)


def say_warnings(warnings: Iterable[object]) -> None:
    """Print the warnings about a file on standard error."""
    for each in warnings:
        say(f"Warning: {each}")


def print_content(content: bytes) -> None:
    """Print the text on standard output, unchanged. For a terminal, control characters are written out."""
    out = sys.stdout
    out.flush()
    if out.isatty():
        text = content.decode(errors="replace")
        shown = _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
        content = shown.encode(out.encoding or "utf-8", errors="replace")
    out.buffer.write(content)
    out.buffer.flush()


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
