"""Errors as messages: one sentence on standard error and an exit code. This happens only here.

Every start of the program imports this module, so it imports nothing heavy before there is an error.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Final

from .output import say

REFUSED: Final = 1
MISUSED: Final = 2
BUG: Final = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # what a shell reports for a program that SIGPIPE ended

DEBUG_VARIABLE: Final = "HOLDFAST_DEBUG"


class Stop(Exception):
    """The command ends here, with this message and this exit code."""

    def __init__(self, *sentences: str, code: int = MISUSED) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences
        self.code = code


def report_error(error: BaseException) -> int:
    """Print on standard error what happened, and return the exit code."""
    from holdfast.contracts.redaction import scrub  # noqa: PLC0415 - see above

    leaves = list(_leaves(error))
    messages = [_message_and_code(leaf) for leaf in leaves]
    known = [each for each in messages if each is not None]
    if len(known) == len(messages):
        lines = dict.fromkeys(line for lines, _ in known for line in lines)
        for prefix, line in zip(chain(["Error: "], repeat(" " * 7)), lines, strict=False):
            say(prefix + line)
        code = max(code for _, code in known)
    else:
        unexpected = leaves[messages.index(None)]
        say(f"Error: something unexpected happened: {type(unexpected).__name__}: {scrub(str(unexpected))}")
        say(f"This is a bug in Holdfast or in a workload. {DEBUG_VARIABLE}=1 shows where it happened.")
        code = BUG
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors. Tasks that run in parallel raise theirs as a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _message_and_code(error: BaseException) -> tuple[list[str], int] | None:
    """The lines and the exit code of an expected error; None for any other error."""
    from holdfast.contracts.admission import InvalidContent  # noqa: PLC0415 - see above
    from holdfast.contracts.errors import HoldfastError, NotFound, ReviewRefused  # noqa: PLC0415 - see above

    match error:
        case Stop():
            return list(error.sentences), error.code
        case InvalidContent():
            fields = [f"{each.field}: {each.problem}" for each in error.problems]
            return [error.message, *fields], MISUSED
        case HoldfastError():
            return [error.message], REFUSED if isinstance(error, NotFound | ReviewRefused) else MISUSED
        case OSError(strerror=str() as why):
            place = "" if error.filename is None else f"{error.filename}: "
            return [f"{place}{why}."], MISUSED
        case _:
            return None
