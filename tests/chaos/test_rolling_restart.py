"""SIGTERM under load: every process is replaced, one after another, and no attempt is lost (I17)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.support.arena import SqliteArena, arena

PATIENT_LEASE = {"WORKER_LEASE_SECONDS": "30", "WORKER_DRAIN_TIMEOUT_MS": "300"}
"""Leases that do not run out by themselves: whatever comes back was released."""

SLOTS = 20


async def gated(arena: SqliteArena, gate: str, jobs: int) -> None:
    await arena.accepted(*(arena.author.task("plain", gate=gate) for _ in range(jobs)))
    await arena.until("SELECT count(*) FROM ledger_entries WHERE status = 'processing'", equals=jobs)


async def test_a_rolling_restart_costs_no_attempt(tmp_path, rounds, seed, tell):
    began = time.monotonic()
    rounds = max(1, rounds // 2)
    async with arena(tmp_path, seed, modes=("plain",), **PATIENT_LEASE) as field:
        roles = ["api", "api", "worker", "worker"]
        processes = list(await asyncio.gather(*(field.fleet.start(role) for role in roles)))
        # Longer than the drain, so that a stopping worker has to hand them back; few, so that the others go on.
        await gated(field, "end", SLOTS // 4)
        codes = []
        async with field.under_load():
            for _ in range(rounds):
                for place, role in enumerate(roles):
                    replacement = await field.fleet.start(role)
                    codes.append(await processes[place].terminate())
                    processes[place] = replacement
        field.open_gate("end")
        await field.ask_again()
        await field.drained()
        codes += [await process.terminate() for process in processes]
        report = field.check()
        attempts = field.query("SELECT DISTINCT attempt_count FROM ledger_entries")
        runs = Counter(key for key, *_ in field.runs())
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "restarts": len(codes)})

    assert report.violations == []
    assert set(codes) == {0}
    assert report.figures["lost attempts"] == 0
    assert attempts == [(1,)], "a released job must look as if it had never been taken"
    assert max(runs.values()) > 1, "no job was ever released: nothing was tested"


async def test_a_worker_with_no_free_slot_stops_all_the_same(tmp_path, seed):
    async with arena(tmp_path, seed, **PATIENT_LEASE) as field:
        await field.fleet.start("api")
        worker = await field.fleet.start("worker")
        await gated(field, "never", SLOTS)
        await field.accepted(field.author.task("plain"))

        assert await worker.terminate(within=20) == 0

        states = field.query("SELECT status, attempt_count, count(*) FROM ledger_entries GROUP BY 1, 2")
        assert states == [("received", 0, SLOTS + 1)]
