"""Crashes: at which point the worker vanishes."""

from __future__ import annotations

from typing import Final

from holdfast.contracts import crash_points
from holdfast.contracts.crash_points import CRASH_POINTS, POINTS_OF_NO_RETURN, POINTS_OF_SCHEDULES

from .worker import SteppedWorker

WORKED: Final = "worker.handled"
"""A handler has returned, and nothing is committed."""

_NOT_THE_WORKERS: Final = ("intake.", "lists.", "review.", "store.")


class Crashes:
    """The points at which the worker of one test will vanish, each once."""

    def __init__(self) -> None:
        self._points: list[str] = []
        self._worker: SteppedWorker | None = None

    def arm(self, point: str) -> None:
        """The worker vanishes when it next passes this point. Raises ``ValueError`` for a point that it cannot pass."""
        points = (*CRASH_POINTS, *POINTS_OF_NO_RETURN, *POINTS_OF_SCHEDULES)
        known = [each for each in points if not each.startswith(_NOT_THE_WORKERS)]
        groups = {each.partition(".")[0] for each in known}
        if point.startswith(_NOT_THE_WORKERS) or (point.partition(".")[0] in groups and point not in known):
            message = f"A worker passes no point {point!r}. Known: {', '.join(known)}, and those of your own handlers."
            raise ValueError(message)
        self._points.append(point)
        crash_points.arm(self._pass)

    def disarm(self) -> None:
        """Nothing vanishes any more."""
        crash_points.arm(None)

    async def watched(self, worker: SteppedWorker) -> bool:
        """Let the worker settle. False: it has vanished."""
        self._worker = worker
        return await worker.settle()

    def _pass(self, point: str) -> None:
        if self._worker is not None and point in self._points:
            self._points.remove(point)
            raise self._worker.vanishes()

    def check_none_left(self) -> None:
        """Raise an ``AssertionError`` if the worker has not passed a point at which it should have vanished."""
        if self._points:
            message = f"The worker has not passed {', '.join(self._points)}: it did not crash there."
            raise AssertionError(message)
