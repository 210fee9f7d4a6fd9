"""``kill -9`` of APIs and workers at any moment, under load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.support.running_gateway import running_gateway

KILLS_A_ROUND = 3
ROLES = ("api", "worker", "api", "worker")


async def test_random_kills_lose_nothing_and_double_nothing(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    kills: Counter[str] = Counter()
    async with running_gateway(tmp_path, seed) as gateway:
        processes = list(await asyncio.gather(*(gateway.fleet.start(role) for role in ROLES)))
        async with gateway.under_load():
            for kill in range(rounds * KILLS_A_ROUND):
                await asyncio.sleep(gateway.chance.uniform(0.1, 0.6))  # the moment is what chance decides here
                place = kill % len(ROLES)
                await processes[place].kill()
                kills[ROLES[place]] += 1
                processes[place] = await gateway.fleet.start(ROLES[place])
        await gateway.ask_again()
        await gateway.drained()
        assert [await process.terminate() for process in processes] == [0, 0, 0, 0]
        report = gateway.check()
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "kills": dict(kills)})

    assert report.violations == []
    assert set(kills) == set(ROLES)
