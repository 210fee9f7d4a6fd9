"""A worker that sleeps past its lease (SIGSTOP) and wakes up again: what it brings then is not taken (I4)."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

from tests.support.long_run import CALM, ENTRIES, LONG_RUN
from tests.support.processes import GatewayProcess
from tests.support.running_cluster import ClusterGateway, running_cluster

JOBS = 12
"""More than nothing and less than a worker's slots: one worker can hold them all."""


def held(gateway: ClusterGateway, worker: GatewayProcess) -> int:
    """How many jobs this process has in work, by the ledger."""
    running = {"worker": {"$regex": rf"\.{worker.pid}_"}, "outcome": "running"}
    return gateway.entries(status="processing", attemptHistory={"$elemMatch": running})


def stale_results(worker: GatewayProcess) -> int:
    """How many results this worker brought too late, by its own log."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines()]
    return sum(line["event"] == "attempt.stale" and "attempt" in line for line in lines)


async def one_takes_over(gateway: ClusterGateway, sleeper: GatewayProcess) -> GatewayProcess:
    """Every job that the sleeper held is worked by another; half of them are settled when it wakes."""
    tasks = [gateway.author.task("plain", gate=gate) for gate in ("early", "late") for _ in range(JOBS // 2)]
    await gateway.accepted(*tasks)
    await gateway.until(lambda: held(gateway, sleeper) == JOBS, "the sleeper holds all jobs")
    sleeper.signal(signal.SIGSTOP)
    successor = await gateway.fleet.start("worker")
    await gateway.until(lambda: held(gateway, successor) == JOBS, "its successor holds all jobs")
    # Half of the jobs are settled when the sleeper wakes, the other half are in the successor's hands: its handlers
    # and the sleeper's see the gate open at the same moment, and both bring their results.
    gateway.open_gate("early")
    await gateway.until(lambda: gateway.entries(status="processing") == JOBS // 2, "half are settled")
    gateway.open_gate("late")
    sleeper.signal(signal.SIGCONT)
    await gateway.drained()
    return successor


async def sleeps_under_load(gateway: ClusterGateway, sleeper: GatewayProcess) -> None:
    """It stops with jobs in its hands and goes on when none of them is its own any more."""
    await gateway.until(lambda: held(gateway, sleeper) > 0, "the sleeper has work")
    sleeper.signal(signal.SIGSTOP)
    await gateway.until(lambda: held(gateway, sleeper) == 0, "others took its work over")
    sleeper.signal(signal.SIGCONT)
    await gateway.more(CALM)


async def test_a_worker_that_slept_past_its_lease_commits_nothing(tmp_path, rounds, seed, tell, mongo):
    began = time.monotonic()
    sleeps = max(1, rounds // 3) if LONG_RUN else 1
    async with running_cluster(tmp_path, seed, mongo) as gateway:
        _, sleeper = await gateway.start(("api",), ("worker",))
        await one_takes_over(gateway, sleeper)
        async with gateway.under_load(entries=ENTRIES):
            for _ in range(sleeps):
                await sleeps_under_load(gateway, sleeper)
        report = await gateway.ended()
        stale = stale_results(sleeper)
        runs = Counter((key, generation) for key, generation, *_ in gateway.runs())
    tell(
        {
            "seed": seed,
            "seconds": round(time.monotonic() - began),
            **report.figures,
            "sleeps": 1 + sleeps,
            "stale results": stale,
        }
    )

    assert report.violations == []
    # Every gated job was handled by both workers. That each has one effect, of the attempt that succeeded, is the
    # checker's.
    assert sum(times > 1 for times in runs.values()) >= JOBS
    assert report.figures["lost attempts"] >= JOBS
    assert stale > 0, "the sleeper never brought a result: nothing was tested"
    assert report.figures["entries"] >= ENTRIES
