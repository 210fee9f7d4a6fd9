"""Events as records of Python's ``logging``, for a program that has Holdfast inside.

The logger is called ``holdfast``. A program that does not configure logging sees warnings and errors alone: that is
what Python does without a handler. The message of a record has the event and its fields; ``record.holdfast`` has the
same fields as a mapping. All text is scrubbed (I14).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any, Final

from . import attach, detach
from .logs import level_of, scrubbed

LOGGER: Final = logging.getLogger("holdfast")

_lock: Final = threading.Lock()
_users = 0


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """During the body, events go to the logger. Two bodies at a time log each event once: events are the process's."""
    global _users  # noqa: PLW0603 - as many as there are bodies in this process
    with _lock:
        _users += 1
        if _users == 1:
            attach(_export)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                detach(_export)


def _export(event: str, fields: dict[str, Any]) -> None:
    level = level_of(event, fields)
    if not LOGGER.isEnabledFor(level):
        return
    shown = scrubbed(fields)
    lines = shown.get("traceback")
    text = " ".join(f"{name}={value}" for name, value in shown.items() if name != "traceback")
    below = "".join(f"\n    {line}" for line in lines) if isinstance(lines, list) else ""
    LOGGER.log(level, "%s %s%s", event, text, below, extra={"holdfast": shown})
