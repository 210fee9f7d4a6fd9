"""A worker that sleeps past its lease (SIGSTOP) and wakes up again: what it brings then is not taken (I4)."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

from tests.support.processes import GatewayProcess
from tests.support.running_gateway import EmbeddedGateway, running_gateway

JOBS = 12
"""More than nothing and less than a worker's slots: one worker can hold them all."""

_HELD = """
SELECT count(*) FROM ledger_entries WHERE status = 'processing' AND attempts ->> '$[#-1].worker' LIKE ?
"""


async def until_held(gateway: EmbeddedGateway, worker: GatewayProcess, jobs: int) -> None:
    """Wait until the ledger says that this process has so many jobs in work."""
    await gateway.until(_HELD, f"%.{worker.pid}_%", equals=jobs)


def stale_results(worker: GatewayProcess) -> int:
    """How many results this worker brought too late, by its own log."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines()]
    return sum(line["event"] == "attempt.stale" and "attempt" in line for line in lines)


async def test_a_worker_that_slept_past_its_lease_commits_nothing(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    rounds = max(1, rounds // 2)
    stale = 0
    async with running_gateway(tmp_path, seed) as gateway:
        await gateway.fleet.start("api")
        sleeper = await gateway.fleet.start("worker")
        for round_ in range(rounds):
            early, late = f"early-{round_}", f"late-{round_}"
            tasks = [gateway.author.task("plain", gate=gate) for gate in (early, late) for _ in range(JOBS // 2)]
            await gateway.accepted(*tasks)
            await until_held(gateway, sleeper, JOBS)
            sleeper.signal(signal.SIGSTOP)
            # Its leases run out; another worker takes every job over and starts over.
            successor = await gateway.fleet.start("worker")
            await until_held(gateway, successor, JOBS)
            # Half of the jobs are settled when the sleeper wakes, the other half are in the successor's hands: its
            # handlers and the sleeper's see the gate open at the same moment, and both bring their results.
            gateway.open_gate(early)
            await gateway.until("SELECT count(*) FROM ledger_entries WHERE status = 'processing'", equals=JOBS // 2)
            gateway.open_gate(late)
            sleeper.signal(signal.SIGCONT)
            await gateway.drained()
            # Awake again, it works as before.
            await successor.terminate()
            await gateway.accepted(gateway.author.task("plain"))
            await gateway.drained()
            stale += stale_results(sleeper)
            await sleeper.terminate()
            sleeper = await gateway.fleet.start("worker")
        await sleeper.terminate()
        report = gateway.check()
        runs = Counter((key, generation) for key, generation, *_ in gateway.runs())
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "stale results": stale})

    assert report.violations == []
    # Every job was handled by both workers. That each has one effect, of the attempt that succeeded, is the checker's.
    assert sum(times > 1 for times in runs.values()) >= rounds * JOBS
    assert report.figures["lost attempts"] >= rounds * JOBS
    assert stale > 0, "the sleeper never brought a result: nothing was tested"
