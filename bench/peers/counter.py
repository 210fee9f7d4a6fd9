"""How many jobs the handlers of a system have run, over all of its processes.

Each process counts in a file of its own that is mapped into memory: one more job costs less than a microsecond, and
the measuring program reads all counts without asking the system.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

from .plan import plan

_BYTES = 8


class Counter:
    """The count of this process. A fork starts a count of its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._view: memoryview | None = None
        self._lock = threading.Lock()

    def add(self) -> None:
        """One more job."""
        with self._lock:
            if self._pid != os.getpid():
                self._open()
            assert self._view is not None  # noqa: S101 - opened above
            self._view[0] += 1

    def _open(self) -> None:
        self._pid = os.getpid()
        path = Path(plan()["counts"]) / str(self._pid)
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._view = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")


_counter = Counter()
count_one = _counter.add


def total(folder: Path) -> int:
    """All counts together."""
    return sum(int.from_bytes(path.read_bytes()[:_BYTES], "little") for path in folder.iterdir())
