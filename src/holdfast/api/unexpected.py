"""Unexpected errors: they go to the log, never to the client."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Final

from pydantic import ValidationError

from holdfast.contracts.redaction import scrub
from holdfast.telemetry import emit, events

_FRAMES: Final = 6


def report_unexpected(error: BaseException, trace_id: str) -> None:
    """Log the error and where it happened. Its text is scrubbed; it is left out where it would hold values (I14)."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    reason = "" if isinstance(error, ValidationError) else scrub(str(error))
    emit(events.API_UNEXPECTED, error=type(error).__name__, reason=reason, where=where, trace_id=trace_id)
