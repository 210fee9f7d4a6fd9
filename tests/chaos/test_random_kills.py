"""``kill -9`` of APIs and workers at any moment, under load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.support.arena import arena

KILLS_A_ROUND = 3
ROLES = ("api", "worker", "api", "worker")


async def test_random_kills_lose_nothing_and_double_nothing(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    kills: Counter[str] = Counter()
    async with arena(tmp_path, seed) as field:
        processes = list(await asyncio.gather(*(field.fleet.start(role) for role in ROLES)))
        async with field.under_load():
            for kill in range(rounds * KILLS_A_ROUND):
                await asyncio.sleep(field.chance.uniform(0.1, 0.6))  # the moment is what chance decides here
                place = kill % len(ROLES)
                await processes[place].kill()
                kills[ROLES[place]] += 1
                processes[place] = await field.fleet.start(ROLES[place])
        await field.ask_again()
        await field.drained()
        assert [await process.terminate() for process in processes] == [0, 0, 0, 0]
        report = field.check()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "kills": dict(kills)})

    assert report.violations == []
    assert set(kills) == set(ROLES)
