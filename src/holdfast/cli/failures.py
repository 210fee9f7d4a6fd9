"""What goes wrong, in words: one sentence on standard error and an exit code, in exactly one place."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Final

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.errors import HoldfastError, NotFound, ReviewRefused
from holdfast.contracts.redaction import scrub

from .output import say

REFUSED: Final = 1
MISUSED: Final = 2
BUG: Final = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # what a shell reports for a program that SIGPIPE ended

DEBUG_VARIABLE: Final = "HOLDFAST_DEBUG"


class Stop(Exception):
    """The command ends here: why, and with which exit code."""

    def __init__(self, *sentences: str, code: int = MISUSED) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences
        self.code = code


def tell(error: BaseException) -> int:
    """Say on standard error what happened, and return the exit code."""
    leaves = list(_leaves(error))
    known = [_known(leaf) for leaf in leaves]
    told = [each for each in known if each is not None]
    if len(told) == len(known):
        lines = dict.fromkeys(line for lines, _ in told for line in lines)
        for prefix, line in zip(chain(["Error: "], repeat(" " * 7)), lines, strict=False):
            say(prefix + line)
        code = max(code for _, code in told)
    else:
        surprise = leaves[known.index(None)]
        say(f"Error: something unexpected happened: {type(surprise).__name__}: {scrub(str(surprise))}")
        say(f"This is a bug in Holdfast or in a workload. {DEBUG_VARIABLE}=1 shows where it happened.")
        code = BUG
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    return code


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors themselves: parts that run side by side report theirs as a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _known(error: BaseException) -> tuple[list[str], int] | None:
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
