"""The log: one line for each event, as text on a terminal and as JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import structlog

from holdfast.contracts.redaction import scrub

from . import events

_WARNINGS: Final = frozenset(
    {
        events.API_UNEXPECTED,
        events.ATTEMPT_STALE,
        events.BATCH_SPLIT,
        events.BOUND_REACHED,
        events.JOB_DEAD_LETTERED,
        events.PROCESS_KILLED,
        events.PROCESS_LOST,
        events.QUEUE_HALTED,
        events.QUEUE_LOST,
        events.QUEUE_SHARED,
        events.QUEUE_UNAVAILABLE,
        events.QUEUE_UNSURE,
        events.RECORDS_FOREIGN,
        events.RELOAD_REFUSED,
        events.RESTART_ABANDONED,
        events.SCHEDULE_FAILED,
        events.SCHEDULE_LATE,
        events.SCHEDULE_REWOUND,
        events.STORE_UNAVAILABLE,
        events.MAINTENANCE_FAILED,
        events.WORKER_FAULT,
    },
)
_LEVELS: Final = {
    **dict.fromkeys(_WARNINGS, logging.WARNING),
    **dict.fromkeys((events.JOB_ACCEPTED, events.MAINTENANCE_DONE), logging.DEBUG),
    events.WORKLOAD_FAILED: logging.ERROR,
}
"""The levels of the events whose level is not info."""


class LogExporter:
    """Writes events as log lines. All text is scrubbed (I14)."""

    def __init__(self, level: str, style: str, stream: TextIO | None = None) -> None:
        """``style`` is ``json``, ``console`` or ``auto`` (console on a terminal)."""
        stream = stream or sys.stderr
        pretty = style == "console" or (style == "auto" and stream.isatty())
        renderer: Any = (
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False)
            if pretty
            else structlog.processors.JSONRenderer()
        )
        self._pretty = pretty
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(self._level),
            cache_logger_on_first_use=True,
        )

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Write one line."""
        level = level_of(event, fields)
        if level >= self._level:
            shown = scrubbed(fields)
            if self._pretty and isinstance(shown.get("traceback"), list):
                # The renderer writes this field as lines of its own.
                shown["exception"] = "\n".join(f"    {line}" for line in shown.pop("traceback"))
            self._logger.log(level, event, **shown)


def level_of(event: str, fields: Mapping[str, Any]) -> int:
    """The level of the event in a log."""
    if event == events.ATTEMPT_SETTLED and fields.get("outcome") == "processed":
        return logging.DEBUG
    return _LEVELS.get(event, logging.INFO)


def scrubbed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a log may have them (I14)."""
    return {name: _shown(value) for name, value in fields.items()}


def _shown(value: Any) -> Any:  # noqa: ANN401 - fields of any type
    match value:
        case str():
            return scrub(value)
        case Mapping():
            return scrubbed(value)
        case list() | tuple():
            return [_shown(each) for each in value]
        case _:
            return value
