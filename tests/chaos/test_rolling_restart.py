"""SIGTERM under load: every process is replaced, one after another, and no attempt is lost (I17)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.support.running_gateway import EmbeddedGateway, running_gateway

PATIENT_LEASE = {"WORKER_LEASE_SECONDS": "30", "WORKER_DRAIN_TIMEOUT_MS": "300"}
"""Leases that do not run out by themselves: whatever comes back was released."""

SLOTS = 20


async def gated(gateway: EmbeddedGateway, gate: str, jobs: int) -> None:
    await gateway.accepted(*(gateway.author.task("plain", gate=gate) for _ in range(jobs)))
    await gateway.until("SELECT count(*) FROM ledger_entries WHERE status = 'processing'", equals=jobs)


async def test_a_rolling_restart_costs_no_attempt(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    rounds = max(1, rounds // 2)
    async with running_gateway(tmp_path, seed, modes=("plain",), **PATIENT_LEASE) as gateway:
        roles = ["api", "api", "worker", "worker"]
        processes = list(await asyncio.gather(*(gateway.fleet.start(role) for role in roles)))
        # Longer than the drain, so that a stopping worker has to hand them back; few, so that the others go on.
        await gated(gateway, "end", SLOTS // 4)
        codes = []
        async with gateway.under_load():
            for _ in range(rounds):
                for place, role in enumerate(roles):
                    replacement = await gateway.fleet.start(role)
                    codes.append(await processes[place].terminate())
                    processes[place] = replacement
        gateway.open_gate("end")
        await gateway.ask_again()
        await gateway.drained()
        codes += [await process.terminate() for process in processes]
        report = gateway.check()
        attempts = gateway.query("SELECT DISTINCT attempt_count FROM ledger_entries")
        runs = Counter(key for key, *_ in gateway.runs())
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "restarts": len(codes)})

    assert report.violations == []
    assert set(codes) == {0}
    assert report.figures["lost attempts"] == 0
    assert attempts == [(1,)], "a released job must look as if it had never been taken"
    assert max(runs.values()) > 1, "no job was ever released: nothing was tested"


async def test_a_worker_with_no_free_slot_stops_all_the_same(tmp_path, seed):
    async with running_gateway(tmp_path, seed, **PATIENT_LEASE) as gateway:
        await gateway.fleet.start("api")
        worker = await gateway.fleet.start("worker")
        await gated(gateway, "never", SLOTS)
        await gateway.accepted(gateway.author.task("plain"))

        assert await worker.terminate(within=20) == 0

        states = gateway.query("SELECT status, attempt_count, count(*) FROM ledger_entries GROUP BY 1, 2")
        assert states == [("received", 0, SLOTS + 1)]
