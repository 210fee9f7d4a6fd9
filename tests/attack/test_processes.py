"""Attacks on processes: children and parents that are killed at the worst moment, and reads that take much memory."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import pytest

from holdfast.wiring import run
from tests.cli.commands import ENVIRONMENT
from tests.support.program import is_alive, started_later, stop, wait_until
from tests.support.settings import Settings


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

LARGE_READS = """
import os, sys
from pathlib import Path
from holdfast.wiring.running import give_back_large_blocks

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024**2

if sys.argv[1] == "held":
    give_back_large_blocks()
bytes(30_000_000)  # once it is freed, glibc takes such blocks from its heap, too
before = memory()
bodies, small = [], []
for number in range(400):
    bodies.append(b"x" * 250_000)
    small.append(bytes(600))
bodies.clear()
print(memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="The memory of a process is read from /proc.")
def test_the_memory_of_large_reads_goes_back_to_the_system(tell):
    def megabytes(how: str) -> int:
        command = [sys.executable, "-c", LARGE_READS, how]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    kept, left_alone = megabytes("held"), megabytes("left alone")
    assert kept < 10
    if platform.libc_ver()[0] == "glibc":
        assert left_alone > 50, "then nothing needs to be done"
    tell({"read": "100 MB", "kept": f"{kept} MB", "without the rule": f"{left_alone} MB"})


async def test_every_process_gives_its_memory_back(monkeypatch, tmp_path):
    class Called(Exception):
        pass

    def called() -> None:
        raise Called

    monkeypatch.setattr("holdfast.wiring.running.give_back_large_blocks", called)
    with pytest.raises(Called):
        await run(Settings(holdfast_data=tmp_path), api=False, worker=False)
