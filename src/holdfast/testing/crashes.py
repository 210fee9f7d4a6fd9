"""Crashes: at which points the worker of a test vanishes."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from holdfast.contracts import crash_points
from holdfast.contracts.crash_points import CRASH_POINTS, POINTS_OF_NO_RETURN, POINTS_OF_SCHEDULES

from .worker import SteppedWorker

WORKED: Final = "worker.handled"
"""A handler has returned, and nothing is committed."""

_NOT_THE_WORKERS: Final = ("intake.", "lists.", "review.", "store.")

_passing: Final[ContextVar[tuple[Crashes, SteppedWorker] | None]] = ContextVar("passing", default=None)
"""Whose worker passes a point. Its tasks and its threads have the context in which it was told to settle."""


class Crashes:
    """The points at which the worker of one test will vanish, each once."""

    def __init__(self) -> None:
        self._points: list[str] = []

    def arm(self, point: str) -> None:
        """The worker vanishes when it next passes this point. Raises ``ValueError`` for a point that it cannot pass."""
        points = (*CRASH_POINTS, *POINTS_OF_NO_RETURN, *POINTS_OF_SCHEDULES)
        known = [each for each in points if not each.startswith(_NOT_THE_WORKERS)]
        groups = {each.partition(".")[0] for each in known}
        if point.startswith(_NOT_THE_WORKERS) or (point.partition(".")[0] in groups and point not in known):
            message = f"A worker passes no point {point!r}. Known: {', '.join(known)}, and those of your own handlers."
            raise ValueError(message)
        self._points.append(point)
        crash_points.arm(_pass)  # stays: without a worker of a test, nothing vanishes

    async def watched(self, worker: SteppedWorker) -> bool:
        """Let the worker settle. False: it has vanished."""
        token = _passing.set((self, worker))
        try:
            return await worker.settle()
        finally:
            _passing.reset(token)

    def vanishes_at(self, point: str) -> bool:
        """Whether the worker vanishes at this point, which it passes now."""
        if point not in self._points:
            return False
        self._points.remove(point)
        return True

    def check_none_left(self) -> None:
        """Raise an ``AssertionError`` if the worker has not passed a point at which it should have vanished."""
        if self._points:
            message = f"The worker has not passed {', '.join(self._points)}: it did not crash there."
            raise AssertionError(message)


def _pass(point: str) -> None:
    passing = _passing.get()
    if passing is not None:
        crashes, worker = passing
        if crashes.vanishes_at(point):
            raise worker.vanishes()
