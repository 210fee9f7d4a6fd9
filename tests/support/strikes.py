"""Processes that are to end themselves at named crash points, one after another, under load."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from holdfast.contracts.crash_points import CRASH_POINTS

from .processes import Fleet

STRIKE_SECONDS: Final = 120
"""How long an armed process may live under load before its point counts as never reached."""

API_POINTS: Final = ("intake.before_record", "intake.recorded", "intake.published", "review.replayed")
EVERYWHERE: Final = ("store.before_commit", "store.committed")
WORKER_POINTS: Final = tuple(point for point in CRASH_POINTS if point not in {*API_POINTS, *EVERYWHERE})


@dataclass(frozen=True, slots=True)
class Strike:
    """One process, to be ended at the n-th pass of a point."""

    role: str
    point: str
    nth: int


def strikes(chance: Random, role: str, points: Sequence[str], rounds: int, *, passed_at_start: int) -> list[Strike]:
    """Each point once a round: at its first pass, then ever deeper in. Commits also while the process starts.

    ``passed_at_start`` is how many commits a process makes before it is ready.
    """
    planned = []
    for round_ in range(rounds):
        for point in points:
            nth = 1 if round_ == 0 else chance.randint(2, 6)
            if point in EVERYWHERE and round_ % 3 != 2:
                nth = passed_at_start + chance.randint(1, 30)
            planned.append(Strike(role, point, nth))
    chance.shuffle(planned)
    return planned


async def carry_out(fleet: Fleet, planned: list[Strike], deaths: Counter[str], then: str) -> None:
    """Start armed processes one after another; each must die by its own hand. A healthy one comes last."""
    while planned:
        strike = planned.pop()
        process = await fleet.start(strike.role, HOLDFAST_CRASH_POINT=f"{strike.point}:{strike.nth}")
        try:
            code = await process.ended(STRIKE_SECONDS)
        except TimeoutError:
            message = f"{strike} was never reached; see {process.log}"
            raise AssertionError(message) from None
        assert code == -signal.SIGKILL, f"{strike} ended with {code}; see {process.log}"
        deaths[strike.point] += 1
    await fleet.start(then)
