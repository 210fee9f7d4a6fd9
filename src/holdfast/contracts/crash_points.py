"""Named places where a test can end the process.

Production code calls :func:`crash_point` and nothing happens. A test arms one point by name (the composition root
reads ``HOLDFAST_CRASH_POINT``), and the process is killed there as by a power cut: without cleanup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CRASH_POINTS: Final[tuple[str, ...]] = (
    "intake.before_record",
    "intake.recorded",
    "intake.published",
    "store.before_commit",
    "store.committed",
    "worker.taken",
    "worker.claimed",
    "worker.handled",
    "worker.settled",
    "worker.acknowledged",
    "letters.settled",
    "letters.published",
    "maintenance.swept",
    "maintenance.republished",
    "review.replayed",
)

POINTS_OF_NO_RETURN: Final[tuple[str, ...]] = (
    "worker.proceeding",
    "worker.proceeded",
    "email.before_send",
    "email.sent",
)
"""Only jobs that do something irreversible pass these."""

POINTS_OF_LISTS: Final[tuple[str, ...]] = (
    "lists.taken",
    "lists.recorded",
    "lists.letters_sent",
)
"""Passed only if documents come from plain Redis lists, and their dead letters go to such a list."""

POINTS_OF_SCHEDULES: Final[tuple[str, ...]] = (
    "schedules.read",
    "schedules.submitted",
    "schedules.moved",
)
"""Passed only if there are schedules."""

_hook: Callable[[str], None] | None = None


def arm(hook: Callable[[str], None] | None) -> None:
    """Call ``hook`` with the name of every point that is passed; None disarms."""
    global _hook  # noqa: PLW0603 - one process, one switch, off in production
    _hook = hook


def crash_point(name: str) -> None:
    """Pass a named point."""
    if _hook is not None:
        _hook(name)
