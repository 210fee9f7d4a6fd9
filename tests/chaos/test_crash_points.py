"""Every named crash point, several times, under load: heal, drain, and nothing is lost and nothing happened twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from holdfast.contracts.crash_points import CRASH_POINTS
from tests.support.arena import Arena, arena

STRIKE_SECONDS = 60
"""How long an armed process may live under load before its point counts as never reached."""

PASSED_AT_START = 3
"""Durable commits of a process that starts: the migrations of both parts, and the workloads' tables."""

API_POINTS = ("intake.before_record", "intake.recorded", "intake.published", "review.replayed")
EVERYWHERE = ("store.before_commit", "store.committed")
WORKER_POINTS = tuple(point for point in CRASH_POINTS if point not in {*API_POINTS, *EVERYWHERE})


@dataclass(frozen=True, slots=True)
class Strike:
    """One process, to be ended at the n-th pass of a point."""

    role: str
    point: str
    nth: int


def strikes(chance: Random, role: str, points: Sequence[str], rounds: int) -> list[Strike]:
    """Each point once a round: at its first pass, then ever deeper in. Commits also while the process starts."""
    planned = []
    for round_ in range(rounds):
        for point in points:
            nth = 1 if round_ == 0 else chance.randint(2, 6)
            if point in EVERYWHERE and round_ % 3 != 2:
                nth = PASSED_AT_START + chance.randint(1, 30)
            planned.append(Strike(role, point, nth))
    chance.shuffle(planned)
    return planned


async def carry_out(arena: Arena, planned: list[Strike], deaths: Counter[str], then: str) -> None:
    """Start armed processes one after another; each must die by its own hand. A healthy one comes last."""
    while planned:
        strike = planned.pop()
        process = await arena.fleet.start(strike.role, HOLDFAST_CRASH_POINT=f"{strike.point}:{strike.nth}")
        try:
            code = await process.ended(STRIKE_SECONDS)
        except TimeoutError:
            message = f"{strike} was never reached; see {process.log}"
            raise AssertionError(message) from None
        assert code == -signal.SIGKILL, f"{strike} ended with {code}; see {process.log}"
        deaths[strike.point] += 1
    await arena.fleet.start(then)


async def test_every_crash_point_is_survived(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    deaths: Counter[str] = Counter()
    async with arena(tmp_path, seed) as field:
        await field.fleet.start("api")
        of_api = strikes(field.chance, "api", [*API_POINTS, *EVERYWHERE], rounds)
        of_workers = strikes(field.chance, "worker", [*WORKER_POINTS, *EVERYWHERE], rounds)
        async with field.under_load(), asyncio.TaskGroup() as lanes:
            lanes.create_task(carry_out(field, of_api, deaths, "api"))
            lanes.create_task(carry_out(field, of_workers, deaths, "worker"))
            lanes.create_task(carry_out(field, of_workers, deaths, "worker"))
        await field.ask_again()
        await field.drained()
        survivors = [process for process in field.fleet.members if process.alive]
        assert [await process.terminate() for process in survivors] == [0, 0, 0, 0]
        report = field.check()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "deaths": dict(deaths)})

    assert report.violations == []
    assert set(deaths) == set(CRASH_POINTS)
    assert min(deaths.values()) >= rounds
    # The run was worth something: there were answers of every kind, and workers that died with jobs in their hands.
    assert all(report.figures[name] for name in ("duplicates", "conflicts", "unknown", "replayed", "lost attempts"))
