"""Bounds: what is counted and logged when a limit refuses something that came from outside (I18)."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Final

from .events import BOUND_REACHED, emit

_LOG_EVERY_SECONDS: Final = 1.0

_refused: Counter[str] = Counter()
_logged: dict[str, tuple[float, int]] = {}
"""For each bound: when it was logged last, and what its count was then."""


def refused(bound: str, /, **fields: Any) -> None:  # noqa: ANN401 - as ``emit``
    """Count a refusal. The log gets one line a second for each bound: whoever sends too much must not fill the log.

    ``bound`` is one of a few fixed names, such as ``header_bytes``; nothing that a sender wrote.
    """
    _refused[bound] += 1
    now = time.monotonic()
    last, counted = _logged.get(bound, (-_LOG_EVERY_SECONDS, 0))
    if now - last >= _LOG_EVERY_SECONDS:
        _logged[bound] = (now, _refused[bound])
        emit(BOUND_REACHED, bound=bound, times=_refused[bound] - counted, **fields)


def refusals() -> dict[str, int]:
    """How often each bound has refused something since the process began."""
    return dict(_refused)
