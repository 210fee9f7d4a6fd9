"""The processes of kill tests are forked and real all the same: each has its own end, and none outlives its test."""

from __future__ import annotations

import os
import signal

from tests.support.nursery import nursery
from tests.support.running_gateway import running_gateway


async def test_each_gateway_has_a_session_and_an_end_of_its_own(tmp_path, seed):
    async with running_gateway(tmp_path, seed) as gateway:
        killed, stopped = [await gateway.fleet.start("worker") for _ in range(2)]
        assert [os.getsid(each.pid) for each in (killed, stopped)] == [killed.pid, stopped.pid]
        await killed.kill()
        killed.signal(signal.SIGTERM)  # nobody is there any more
        assert (killed.exit_code, stopped.alive) == (-signal.SIGKILL, True)
        assert await stopped.terminate() == 0


async def test_a_gateway_that_cannot_start_says_nothing_but_why(tmp_path, seed):
    async with running_gateway(tmp_path, seed) as gateway:
        broken = await gateway.fleet.start("worker", WORKER_CONCURRENCY="many")
        assert (broken.exit_code, broken.ready) == (1, False)
        assert "WORKER_CONCURRENCY" in broken.log.read_text()


async def test_a_gateway_ends_with_the_process_that_started_it(tmp_path, seed):
    async with running_gateway(tmp_path, seed) as gateway:
        orphan = await nursery().start(gateway.fleet.environment, ["worker"], tmp_path / "orphan.log")
        assert b'"ready": true' in await orphan.first_line()
        orphan._talk.close()  # what the kernel does for a process that is gone
        assert await orphan.wait() == 70
