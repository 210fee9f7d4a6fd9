"""``documents run``: read one file from the shell, without a ledger, a queue or a server.

The file is read as a worker reads it: in a child process, under the same limits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.feature import install_command, missing_libraries
from holdfast.features.documents.child.protocol import Plan, Stage, Unit
from holdfast.features.documents.contract import DocumentJob, DocumentPayload, InputType
from holdfast.features.documents.failures import Code, DocumentFailure
from holdfast.features.documents.feature import LIBRARIES, document_options
from holdfast.features.documents.options import DocumentOptions
from holdfast.features.documents.rendering import outputs_of
from holdfast.features.documents.running import read_in_child
from holdfast.features.documents.settings import DocumentSettings
from holdfast.features.documents.tally import characters_of, confidence_of, warnings_of
from holdfast.terminal import Stop, say, settings_with, signals_unwind

from .kinds import FileKind, InputTypeOption, JobTypeOption, kind_of_file, opened
from .options import (
    Engine,
    Format,
    Language,
    ReadingBar,
    Strict,
    failed,
    output_file,
    pages,
    print_content,
    reading_bar,
    require_language,
    say_warnings,
    sound,
)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A PDF, audio or video.", show_default=False)],
    job_type: JobTypeOption = None,
    input_type: InputTypeOption = None,
    language: Language = None,
    engine: Engine = None,
    strict: Strict = False,
    form: Annotated[Format, typer.Option("--format", help="The format of the output.")] = Format.TEXT,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write to this file, not to standard output."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")] = False,
) -> None:
    """Read one file on this machine, and print its text.

    It needs no running gateway and leaves nothing behind. Settings such as DOCUMENT_MEMORY_MB apply as in a worker.
    Warnings about a damaged PDF go to standard error. Exit code 0: read; 1: it could not be read; 2: wrong usage;
    130: interrupted.

    holdfast documents run letter.pdf
    holdfast documents run talk.mp3 --language pt --format srt -o talk.srt
    """
    _require_libraries()
    require_language(language)
    kind = kind_of_file(file, job_type, input_type)
    name = output_file(form, kind.job_type)
    if output is not None:
        _require_place(output, file)
    settings = settings_with()
    options = document_options(settings.of(DocumentSettings), settings)
    name_of_engine = engine or options.engine
    key = options.missing_key(name_of_engine)
    if key is not None:
        message = f"--engine {name_of_engine} needs {key}."
        raise Stop(message)
    try:
        with signals_unwind():
            payload = DocumentPayload(
                # Only the child gets the path. Unlike a local_path, it may be any path.
                local_path="-",
                language=language,
                engine=None if engine is None else engine.value,
                strict=strict,
            )
            reading = asyncio.run(_read(file.absolute(), kind, options, payload, quiet=quiet))
    except DocumentFailure as failure:
        raise failed(failure.message, failure.code, detail=failure.detail) from failure
    content = reading.outputs(file.name)[name]
    if output is None:
        print_content(content)
    else:
        output.write_bytes(content)
    say_warnings(reading.warnings)
    if not quiet:
        say(reading.summary())


@dataclass(slots=True)
class _Reading:
    """One file, while it is read and afterwards."""

    data: DocumentJob
    language: str | None
    bar: ReadingBar
    began: float = field(default_factory=time.monotonic)
    plan: Plan | None = None
    units: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    async def on_message(self, message: Plan | Unit | Stage) -> None:
        """Handle a message of the child."""
        match message:
            case Stage():
                self.bar.stage(message.stage)
            case Plan():
                self.plan = message
                self.bar.stage("reading")
                self._show()
            case Unit():
                self.units.append(message.result)
                self.bar.stage("reading")
                self._show()

    def finish(self) -> None:
        """Check that all units are read. Raises :class:`DocumentFailure` if not."""
        self.seconds = time.monotonic() - self.began
        if self.plan is None or len(self.units) != self.plan.units:
            raise DocumentFailure(Code.CHILD_CRASHED, detail="it sent Finished before all units were read")

    def outputs(self, filename: str) -> dict[str, bytes]:
        """The output files, as a worker writes them."""
        plan = self.plan
        facts = {
            "job_id": None,
            "filename": filename,
            "input_type": self.data.input_type.value,
            "engine": plan.engine if plan else None,
            "model": plan.model if plan else None,
            "language": self.language or _detected_language(self.units),
            "duration_sec": round(self.seconds, 3),
            "media_seconds": plan.duration if plan else None,
            "warnings": self.warnings,
        }
        return outputs_of(self.data.job_type, self.units, facts)

    @property
    def warnings(self) -> list[str]:
        """The warnings about the file."""
        return warnings_of(self.plan.warnings if self.plan else (), self.units)

    def summary(self) -> str:
        """The result in one line."""
        characters = characters_of(self.data.job_type, self.units)
        sure = confidence_of(self.data.job_type, self.units)
        what = f"{len(self.units)} page{'s' * (len(self.units) != 1)}"
        if self.data.input_type is not InputType.PDF:
            what = f"{sound(self.plan.duration or 0 if self.plan else 0, None)} of sound"
        line = f"Read {what} in {self.seconds:.1f} s: {characters:,} characters"
        return f"{line}." if sure is None else f"{line}, confidence {sure:.0%}."

    def _show(self) -> None:
        if self.plan is None:
            return
        if self.plan.unit == "page":
            self.bar.reached(len(self.units), self.plan.units, pages(len(self.units), self.plan.units))
        else:
            done = float(self.units[-1]["end"]) if self.units else 0.0
            self.bar.reached(done, self.plan.duration, sound(done, self.plan.duration))


async def _read(
    file: Path,
    kind: FileKind,
    options: DocumentOptions,
    payload: DocumentPayload,
    *,
    quiet: bool,
) -> _Reading:
    with opened(file) as (_, size):
        if size > options.max_bytes:
            limit = f"The file has {size} bytes, and may have {options.max_bytes} (DOCUMENT_MAX_BYTES)"
            raise DocumentFailure(Code.TOO_LARGE, limit)
    with reading_bar(quiet=quiet) as bar:
        try:
            return await _attempt(file, kind, options, payload, bar)
        except DocumentFailure as failure:
            # Only now is it known whether the recording has pictures. Nothing was read yet.
            if kind.certain or failure.code is not Code.CONTENT_MISMATCH:
                raise
        return await _attempt(file, kind.other, options, payload, bar)


async def _attempt(
    file: Path,
    kind: FileKind,
    options: DocumentOptions,
    payload: DocumentPayload,
    bar: ReadingBar,
) -> _Reading:
    data = DocumentJob(job_id="run", job_type=kind.job_type, input_type=kind.input_type, payload=payload)
    reading = _Reading(data, options.language_of(data), bar)
    await read_in_child(options.spec(data, file, done=0), options.child, reading.on_message)
    reading.finish()
    return reading


def _detected_language(units: Sequence[dict[str, Any]]) -> str | None:
    """The language that the engine detected in a recording."""
    return next((unit["language"] for unit in units if unit.get("language")), None)


def _require_place(output: Path, file: Path) -> None:
    """Refuse a file that cannot be written, before the work begins."""
    place = output if output.exists() else output.absolute().parent
    if output.is_dir() or not os.access(place, os.W_OK):
        message = f"--output {output} cannot be written: give a file in a folder that exists and that you may write to."
        raise Stop(message)
    if output.exists() and output.samefile(file):
        message = "--output is the file itself."
        raise Stop(message)


def _require_libraries() -> None:
    """Raise :class:`Stop` if the libraries that read files are not installed."""
    missing = missing_libraries(LIBRARIES)
    if missing:
        why = f"{', '.join(missing)} not installed. Install it: {install_command(missing)}"
        message = f"Documents are not set up here: {why}"
        raise Stop(message)
