"""Attacks on processes: children and parents that are killed at the worst moment, and reads that take much memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.commands import APP, ENVIRONMENT, TOKEN, make_dead_letters
from tests.cli.parcels import Parcel
from tests.support.program import is_alive, started_later, stop, wait_until
from tests.support.pulse import pulse

MEGABYTE = 1024 * 1024
LETTERS = 60
READS_AT_ONCE = 8


def first_child(server) -> int:
    """The process id of the first child. It needs seconds until it is ready."""
    return wait_until(lambda: server.heard("process.started"))[0]["pid"]


def test_a_child_that_is_killed_before_it_is_ready_is_started_again(tmp_path):
    with started_later(tmp_path, ENVIRONMENT, "up", "--processes", "1", "--port", "0", "--json") as server:
        killed = first_child(server)
        os.kill(killed, signal.SIGKILL)
        line = server.process.stdout.readline()
        assert '"ready": true' in line
        assert str(killed) not in line
        (lost,) = server.heard("process.lost")
        assert (lost["process"], lost["pid"], lost["exit_code"], lost["where"]) == ("api", killed, -9, "start")
        stop(server)


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux signals a process whose parent ends.")
def test_a_child_that_is_not_ready_ends_with_its_killed_parent(tmp_path):
    with started_later(tmp_path, ENVIRONMENT, "worker", "--processes", "1", "--json") as server:
        child = first_child(server)
        server.process.kill()
        wait_until(lambda: not is_alive(child))
        assert server.heard("worker.started") == []


PARENT = """
import socket, subprocess, sys, time
ours, theirs = socket.socketpair()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(theirs.fileno())], pass_fds=[theirs.fileno()])
theirs.close()
time.sleep(600)
"""
CHILD = """
import os, sys, time
from holdfast.cli.supervision import end_with_parent
{before}
end_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)  # it looks at nothing
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux signals a process whose parent ends.")
def test_a_child_that_looks_at_nothing_ends_with_its_killed_parent():
    command = [sys.executable, "-c", PARENT, CHILD.format(before="")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        wait_until(lambda: not is_alive(child))


def test_a_child_whose_parent_was_killed_before_it_looked_ends():
    before = "print(os.getpid(), flush=True)\nwhile os.getppid() == int(sys.argv[2]): time.sleep(0.01)"
    parent = PARENT.replace("str(theirs.fileno())]", 'str(theirs.fileno()), str(__import__("os").getpid())]')
    with subprocess.Popen([sys.executable, "-c", parent, CHILD.format(before=before)], stdout=subprocess.PIPE) as one:
        child = int(one.stdout.readline())
        one.kill()
        wait_until(lambda: not is_alive(child))


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_of(pid: int) -> int:
    """Bytes of real memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="The memory of a process is read from /proc.")
def test_the_memory_of_an_api_process_comes_down_again_after_large_reads(tmp_path, rounds, tell):
    parcels = [Parcel(number=str(n), depot="x" * 250_000 + str(n), broken=True) for n in range(LETTERS)]
    make_dead_letters(tmp_path / "holdfast-data", *parcels)
    arguments = ("api", "--port", "0", "--json", "--app", APP)
    with started_later(tmp_path, ENVIRONMENT | {"LOG_LEVEL": "warning"}, *arguments) as waiting:
        address = json.loads(waiting.process.stdout.readline())["address"]
        port, pid = int(address.rpartition(":")[2]), waiting.process.pid

        async def read(times: int) -> float:
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
                asking = asyncio.Semaphore(READS_AT_ONCE)

                async def once() -> None:
                    async with asking:
                        answer = await client.get(f"{address}/v1/dead-letters?limit=200")
                        assert len(answer.json()["items"]) == LETTERS

                async with pulse(port) as taken:
                    await asyncio.gather(*(once() for _ in range(times)))
                return taken.longest

        asyncio.run(read(1))
        before = memory_of(pid)
        longest = asyncio.run(read(4 * READS_AT_ONCE * rounds))
        after = memory_of(pid)
        stop(waiting)
    assert after < before + 64 * MEGABYTE
    tell({"before": f"{before // MEGABYTE} MB", "after": f"{after // MEGABYTE} MB", "longest wait": f"{longest:.3f} s"})
