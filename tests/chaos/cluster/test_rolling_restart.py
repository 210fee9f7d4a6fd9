"""SIGTERM under load: every process is replaced, one after another, and no attempt is lost (I17)."""

from __future__ import annotations

import time
from collections import Counter

from tests.support.cluster import cluster
from tests.support.long_run import CALM, ENTRIES, LONG_RUN

PATIENT_LEASE = {"WORKER_LEASE_SECONDS": "30", "WORKER_DRAIN_TIMEOUT_MS": "300"}
"""Leases that do not run out by themselves: whatever comes back was released."""

GATED = 5
"""Longer than the drain, so that a stopping worker has to hand them back; few, so that the others go on."""


async def test_a_rolling_restart_costs_no_attempt(tmp_path, rounds, seed, tell, mongo):
    began = time.monotonic()
    rounds = max(1, rounds // 5) if LONG_RUN else 1
    async with cluster(tmp_path, seed, mongo, modes=("plain",), **PATIENT_LEASE) as field:
        roles = ["api", "api", "worker", "worker"]
        processes = await field.start(*([role] for role in roles))
        await field.accepted(*(field.author.task("plain", gate="end") for _ in range(GATED)))
        await field.until(lambda: field.entries(status="processing") == GATED, "all gated jobs are in work")
        codes = []
        async with field.under_load(entries=ENTRIES):
            for _ in range(rounds):
                for place, role in enumerate(roles):
                    replacement = await field.fleet.start(role)
                    codes.append(await processes[place].terminate())
                    processes[place] = replacement
                    await field.more(CALM // len(roles))
        field.open_gate("end")
        report = await field.ended()
        several = field.entries(attemptCount={"$ne": 1})
        runs = Counter(key for key, *_ in field.runs())
    tell({"seed": seed, "seconds": round(time.monotonic() - began), **report.figures, "restarts": len(codes)})

    assert report.violations == []
    assert set(codes) == {0}
    assert report.figures["lost attempts"] == 0
    assert several == 0, "a released job must look as if it had never been taken"
    assert max(runs.values()) > 1, "no job was ever released: nothing was tested"
    assert report.figures["entries"] >= ENTRIES
