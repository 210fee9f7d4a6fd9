"""Failures as events: the error's type, its message and its traceback (I21), without values (I14)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.errors import message_of
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import describe_validation

from .events import emit

_MOST_ERRORS: Final = 4
_MOST_FRAMES: Final = 20


def emit_failure(event: str, error: BaseException, /, **fields: Any) -> None:  # noqa: ANN401 - as ``emit``
    """Emit the event with ``error``, ``reason`` and ``traceback``, beside its other fields."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a task group raises an error
        error = error.exceptions[0]
    # A validation error of pydantic repeats the values in its message. Its description does not.
    reason = describe_validation(error) if isinstance(error, ValidationError) else scrub(message_of(error))
    emit(event, **fields, error=type(error).__name__, reason=reason, traceback=traceback_of(error))


def traceback_of(error: BaseException) -> list[str]:
    """The lines of the traceback, the oldest call first: ``file:line in function: source``.

    An error that was raised because of another error comes after that error, as in Python's own traceback. The lines
    have the types of the errors, and neither their messages nor the values of variables. Long tracebacks lose their
    oldest calls.
    """
    lines: list[str] = []
    for each in reversed(list(_chain(error))):
        lines += [
            scrub(f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else ""))
            for frame in traceback.extract_tb(each.__traceback__, limit=-_MOST_FRAMES)
        ]
        lines.append(type(each).__name__)
    return lines


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and the errors that led to it."""
    each: BaseException | None = error
    for _ in range(_MOST_ERRORS):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
