"""The traceback of a failed attempt, as people read it: bounded, scrubbed, the handler's own frames first."""

from __future__ import annotations

import site
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.contracts.redaction import scrub
from holdfast.telemetry.events import error_chain

_MOST_FRAMES: Final = 12
_LONGEST: Final = 6_000
_LONGEST_LINE: Final = 300
_OURS: Final = str(Path(__file__).parents[1])


def traceback_text(error: BaseException) -> str | None:
    """Where the error was raised, one frame a line; None if it was not raised.

    The error comes first, then each error that led to it. Each has its own frames: the innermost first, and the frames
    of the handler's own code before those of libraries. The text has the types of the errors and the lines of the
    source, and neither messages nor values of variables.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a task group raises an error
        error = error.exceptions[0]
    lines: list[str] = []
    for number, each in enumerate(error_chain(error)):
        frames = [frame for frame in traceback.extract_tb(each.__traceback__) if not frame.filename.startswith(_OURS)]
        own = [frame for frame in frames if not _from_library(frame.filename)]
        others = [frame for frame in frames if _from_library(frame.filename)]
        if not frames and not number:
            return None
        lines.append(f"{type(each).__name__}" if not number else f"because of {type(each).__name__}")
        lines += [f"  {_shown(frame)}" for frame in reversed(own[-_MOST_FRAMES:])]
        if others:
            lines.append("  in libraries:" if own else "  in libraries alone:")
            lines += [f"    {_shown(frame)}" for frame in reversed(others[-_MOST_FRAMES:])]
    return "\n".join(map(scrub, lines))[:_LONGEST]  # line by line, because a text of messages has a smaller limit


def place_of(error: BaseException) -> str | None:
    """The file and the line where the user's own code failed, such as ``app.py:12``; None if no such code ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    own = [frame for frame in frames if not _from_library(frame.filename)]
    return f"{_short(own[-1].filename)}:{own[-1].lineno}" if own else None


def _shown(frame: traceback.FrameSummary) -> str:
    line = f": {frame.line}" if frame.line else ""
    return f"{_short(frame.filename)}:{frame.lineno} in {frame.name}{line}"[:_LONGEST_LINE]


@cache
def _short(filename: str) -> str:
    """The name of the file without the folders of this machine."""
    for folder in (*_library_folders(), str(Path.cwd())):
        if filename.startswith(f"{folder}/"):
            return filename[len(folder) + 1 :]
    return filename


@cache
def _library_folders() -> tuple[str, ...]:
    """The folders of installed libraries and of Python's own, the longest first."""
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], site.getusersitepackages()}
    return tuple(sorted(folders, key=len, reverse=True))


@cache
def _from_library(filename: str) -> bool:
    return filename.startswith("<") or any(filename.startswith(f"{folder}/") for folder in _library_folders())
