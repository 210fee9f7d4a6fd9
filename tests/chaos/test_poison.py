"""A job that kills every worker is dead-lettered after its last attempt (I6), and its neighbours are processed."""

from __future__ import annotations

import signal

from tests.support.running_gateway import running_gateway

MAX_ATTEMPTS = 3


async def test_a_poison_job_kills_max_attempts_workers_and_no_more(tmp_path, seed, tell):
    async with running_gateway(tmp_path, seed, RETRY_MAX_ATTEMPTS=str(MAX_ATTEMPTS)) as gateway:
        await gateway.fleet.start("api")
        poison = gateway.author.task("poison", work_ms=500)  # its neighbours of the same batch are done by then
        await gateway.accepted(poison, *(gateway.author.task("plain") for _ in range(20)))
        deaths = 0
        while gateway.query("SELECT status FROM ledger_entries WHERE key = ?", poison.key) != [("dead_lettered",)]:
            worker = await gateway.fleet.start("worker")
            if deaths == MAX_ATTEMPTS:
                await gateway.drained()
                assert await worker.terminate() == 0
            else:
                assert await worker.ended(60) == -signal.SIGKILL
                deaths += 1
        report = gateway.check()
        letters = gateway.query("SELECT key, reason_code, attempt_count FROM dead_letters")
    tell({**report.figures, "workers killed": deaths})

    assert report.violations == []
    assert deaths == MAX_ATTEMPTS
    assert letters == [(poison.key, "WORKER_LOST", MAX_ATTEMPTS)]
