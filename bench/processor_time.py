"""How much processor time a process has used, from /proc; where there is none, nobody knows (None)."""

from __future__ import annotations

import os
from pathlib import Path


def used_by(pid: int) -> float | None:
    """Seconds of user and system time since the process started."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # After the name: state is field 0, so utime and stime (14 and 15 in the manual) are 11 and 12.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meter:
    """Who uses how much, from the moment this is made. It says what work costs also where others slow it down."""

    def __init__(self, **pids: int | None) -> None:
        self._pids = {name: pid for name, pid in pids.items() if pid is not None}
        self._before = {name: used_by(pid) for name, pid in self._pids.items()}

    def microseconds_each(self, events: float) -> dict[str, float]:
        """Processor time so far, for each of so many events."""
        used = {}
        for name, pid in self._pids.items():
            before, after = self._before[name], used_by(pid)
            if before is not None and after is not None:
                used[name] = 1e6 * (after - before) / events
        return used


def used_by_tree(pid: int) -> float:
    """Seconds of user and system time of a process and of all that it started, also of those that have ended."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # it ended a moment ago
            continue
        fields = text.rpartition(")")[2].split()
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
        # utime, stime, and both of the children that were waited for.
        used[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    seconds, left = 0.0, [pid]
    while left:
        each = left.pop()
        seconds += used.get(each, 0.0)
        left += parents.get(each, [])
    return seconds
