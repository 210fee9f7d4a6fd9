"""SIGTERM under load: every process is replaced, one after another, and no attempt is lost (I17)."""

from __future__ import annotations

import time
from collections import Counter

from tests.support.long_run import CALM, ENTRIES, LONG_RUN
from tests.support.running_cluster import running_cluster

PATIENT_LEASE = {"WORKER_LEASE_SECONDS": "30", "WORKER_DRAIN_TIMEOUT_MS": "300"}
"""Leases that do not run out by themselves: whatever comes back was released."""

GATED = 5
"""Longer than the drain, so that a stopping worker has to hand them back; few, so that the others go on."""


async def test_a_rolling_restart_costs_no_attempt(tmp_path, rounds, seed, tell, mongo):
    began = time.monotonic()
    rounds = max(1, rounds // 5) if LONG_RUN else 1
    async with running_cluster(tmp_path, seed, mongo, modes=("plain",), **PATIENT_LEASE) as gateway:
        roles = ["api", "api", "worker", "worker"]
        processes = await gateway.start(*([role] for role in roles))
        await gateway.accepted(*(gateway.author.task("plain", gate="end") for _ in range(GATED)))
        await gateway.until(lambda: gateway.entries(status="processing") == GATED, "all gated jobs are in work")
        codes = []
        async with gateway.under_load(entries=ENTRIES):
            for _ in range(rounds):
                for place, role in enumerate(roles):
                    replacement = await gateway.fleet.start(role)
                    codes.append(await processes[place].terminate())
                    processes[place] = replacement
                    await gateway.more(CALM // len(roles))
        gateway.open_gate("end")
        report = await gateway.ended()
        several = gateway.entries(attemptCount={"$ne": 1})
        runs = Counter(key for key, *_ in gateway.runs())
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "restarts": len(codes)})

    assert report.violations == []
    assert set(codes) == {0}
    assert report.figures["lost attempts"] == 0
    assert several == 0, "a released job must look as if it had never been taken"
    assert max(runs.values()) > 1, "no job was ever released: nothing was tested"
    assert report.figures["entries"] >= ENTRIES
