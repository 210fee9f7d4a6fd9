"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["OK", "WARN", "FAIL"]

OK: Final = "OK"
WARN: Final = "WARN"
FAIL: Final = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. ``advice`` is the next step for the operator, if there is one."""

    check: str
    level: Level
    message: str
    advice: str | None = None
