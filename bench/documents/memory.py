"""The most memory that the processes we start have had, from /proc; where there is none, nobody knows (None)."""

from __future__ import annotations

import contextlib
import re
import resource
from pathlib import Path
from typing import Final

LOOK_EVERY: Final = 0.01
"""Seconds."""
_KILOBYTE: Final = 1024


class Watch:
    """To be asked again and again while a child runs. The system keeps the mark: only the last moment is missed."""

    def __init__(self) -> None:
        self.peak: int | None = None

    def look(self) -> None:
        """See how high the mark of any child of ours is."""
        for child in _children():
            mark = _high_water(child)
            if mark is not None:
                self.peak = max(mark, self.peak or 0)


def cpu_of_children() -> float:
    """Seconds of processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text(encoding="ascii").split())
    return found


def _high_water(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        if mark := re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE):
            return int(mark[1]) * _KILOBYTE
    return None
