"""The parent of several processes: it starts, watches, replaces and stops real ones, however they behave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from holdfast.cli.supervision import Duty, Restarts, Supervisor
from holdfast.telemetry import attach, detach
from tests.support.program import is_alive
from tests.support.waiting import eventually

CHILD = """
import os, signal, sys, time
lifeline = int(sys.argv[sys.argv.index("--lifeline") + 1])
folder, name = sys.argv[1:3]
with open(os.path.join(folder, "started"), "a") as file:
    file.write(name + " " + str(os.getpid()) + "\\n")
if os.path.exists(os.path.join(folder, name + ".fails")):
    sys.exit(3)
if os.path.exists(os.path.join(folder, name + ".waits")):
    while os.path.exists(os.path.join(folder, name + ".waits")):
        time.sleep(0.01)
if os.path.exists(os.path.join(folder, name + ".deaf")):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(lifeline, b"R")
while True:
    signal.pause()
"""

PATIENT = timedelta(seconds=60)


class Nursery:
    """Where the children of one test say that they were started, and learn how to behave."""

    def __init__(self, folder):
        self.folder = folder
        self.events = []
        self.told_ready = []

    def supervisor(self, *names, stop_within=PATIENT):
        program = (sys.executable, "-c", CHILD)
        duties = [Duty(name, (str(self.folder), name), program=program) for name in names]
        return Supervisor(duties, ready=self.told_ready.append, stop_within=stop_within)

    def teach(self, name, manner):
        (self.folder / f"{name}.{manner}").touch()

    def started(self, name):
        """The process ids that were started under this name, in order."""
        path = self.folder / "started"
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == name]

    def heard(self, event, **fields):
        return [told for name, told in self.events if name == event and fields.items() <= told.items()]


@pytest.fixture
def nursery(tmp_path):
    found = Nursery(tmp_path)

    def hear(event, fields):
        found.events.append((event, fields))

    attach(hear)
    yield found
    detach(hear)


@asynccontextmanager
async def running(supervisor, nursery):
    """The supervisor at work, with all of its children up; stopped at the end, if the block did not stop it."""
    work = asyncio.create_task(supervisor.run())
    try:
        await eventually(lambda: nursery.told_ready or work.done())
        yield work
    finally:
        supervisor.stop()
        await work


async def test_it_is_ready_when_all_are_and_stops_all_when_told(nursery):
    async with running(nursery.supervisor("a", "b", "c"), nursery) as work:
        (members,) = nursery.told_ready
        assert [member.duty.name for member in members] == ["a", "b", "c"]
        pids = [member.pid for member in members]
        assert all(map(is_alive, pids))
        os.kill(os.getpid(), signal.SIGTERM)
        assert await work == 0
        assert not any(map(is_alive, pids))
    assert len(nursery.heard("process.stopped", exit_code=0)) == 3


async def test_what_keeps_the_first_from_starting_is_told_once_and_is_the_exit_code(nursery):
    nursery.teach("a", "fails")
    assert await nursery.supervisor("a", "b").run() == 3
    assert len(nursery.started("a")) == 1
    assert nursery.started("b") == []
    assert nursery.told_ready == []


async def test_if_one_of_the_others_cannot_start_none_is_left(nursery):
    nursery.teach("c", "fails")
    assert await nursery.supervisor("a", "b", "c").run() == 3
    assert not any(is_alive(pid) for name in "abc" for pid in nursery.started(name))


@pytest.mark.parametrize("name", ["a", "b"])
async def test_one_that_is_killed_before_it_is_ready_is_started_again(nursery, name):
    nursery.teach(name, "waits")
    supervisor = nursery.supervisor("a", "b")
    work = asyncio.create_task(supervisor.run())
    for times in (1, 2):
        await eventually(lambda times=times: len(nursery.started(name)) == times)
        os.kill(nursery.started(name)[-1], signal.SIGKILL)
    await eventually(lambda: len(nursery.started(name)) == 3)
    assert nursery.told_ready == []
    (nursery.folder / f"{name}.waits").unlink()
    await eventually(lambda: nursery.told_ready)
    lost = nursery.heard("process.lost", process=name, exit_code=-9, where="start")
    assert [told["again_in_seconds"] for told in lost] == [0.0, 0.5]
    supervisor.stop()
    assert await work == 0


async def test_a_stop_while_one_waits_to_be_started_again_is_heard(nursery):
    nursery.teach("a", "waits")
    supervisor = nursery.supervisor("a")
    work = asyncio.create_task(supervisor.run())
    for times in (1, 2, 3):
        await eventually(lambda times=times: len(nursery.started("a")) == times)
        os.kill(nursery.started("a")[-1], signal.SIGKILL)
    await eventually(lambda: len(nursery.heard("process.lost")) == 3)
    supervisor.stop()
    assert await work == 0
    assert len(nursery.started("a")) == 3


async def test_one_that_cannot_start_ends_those_that_are_killed_again_and_again(nursery):
    nursery.teach("b", "waits")
    nursery.teach("c", "fails")
    assert await nursery.supervisor("a", "b", "c").run() == 3
    assert not any(is_alive(pid) for name in "abc" for pid in nursery.started(name))


async def test_a_stop_while_they_start_is_heard(nursery):
    supervisor = nursery.supervisor("a", "b")
    work = asyncio.create_task(supervisor.run())
    await eventually(lambda: nursery.heard("process.started"))
    supervisor.stop()
    assert await work == 0
    assert nursery.told_ready == []
    assert not any(is_alive(pid) for name in "ab" for pid in nursery.started(name))


async def test_one_that_dies_is_started_again_and_the_others_are_left_alone(nursery):
    async with running(nursery.supervisor("a", "b"), nursery):
        (first,) = nursery.started("a")
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: len(nursery.started("a")) == 2)
        assert nursery.heard("process.lost", process="a", exit_code=-9, again_in_seconds=0.0)
        assert len(nursery.started("b")) == 1


async def test_one_that_keeps_dying_is_started_again_after_ever_longer_pauses(nursery):
    async with running(nursery.supervisor("a"), nursery) as work:
        nursery.teach("a", "fails")
        os.kill(nursery.started("a")[0], signal.SIGKILL)
        await eventually(lambda: len(nursery.heard("process.lost")) >= 3)
        pauses = [told["again_in_seconds"] for told in nursery.heard("process.lost")]
        assert pauses[:3] == [0.0, 0.5, 1.0]
        (nursery.folder / "a.fails").unlink()
        starts = len(nursery.started("a"))
        await eventually(lambda: len(nursery.started("a")) > starts)
        assert not work.done()


def test_pauses_double_up_to_half_a_minute_and_begin_anew_after_a_steady_minute():
    restarts = Restarts()
    assert [restarts.pause_after(0) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restarts.pause_after(61) == 0
    assert restarts.pause_after(59) == 0.5
    assert [restarts.pause_after(0) for _ in range(5_000)][-1] == 30


async def test_a_rolling_restart_replaces_one_after_another_each_when_its_replacement_is_ready(nursery):
    async with running(nursery.supervisor("a", "b"), nursery):
        old = {name: nursery.started(name)[0] for name in "ab"}
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: nursery.heard("restart.done"))
        steps = [
            (event.partition(".")[2], told["pid"])
            for event, told in nursery.events
            if event in {"process.started", "process.stopped"}
        ]
        new = {name: nursery.started(name)[1] for name in "ab"}
        assert steps[2:] == [
            ("started", new["a"]),
            ("stopped", old["a"]),
            ("started", new["b"]),
            ("stopped", old["b"]),
        ]
        assert not any(map(is_alive, old.values()))
        assert all(map(is_alive, new.values()))
        assert nursery.heard("process.lost") == []


async def test_a_replacement_that_does_not_come_up_is_given_up_and_the_old_ones_stay(nursery):
    async with running(nursery.supervisor("a", "b"), nursery):
        nursery.teach("b", "fails")
        os.kill(os.getpid(), signal.SIGHUP)
        (told,) = await eventually(lambda: nursery.heard("restart.abandoned"))
        assert told == {"process": "b", "reason": "it ended with exit code 3"}
        assert is_alive(nursery.started("b")[0])
        assert nursery.heard("restart.done") == []
        # The next attempt finds it mended.
        (nursery.folder / "b.fails").unlink()
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: nursery.heard("restart.done"))
        assert not is_alive(nursery.started("b")[0])


async def test_one_that_dies_after_a_rolling_restart_is_started_again(nursery):
    async with running(nursery.supervisor("a"), nursery):
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: nursery.heard("restart.done"))
        os.kill(nursery.started("a")[1], signal.SIGKILL)
        await eventually(lambda: len(nursery.started("a")) == 3)


async def test_one_that_does_not_stop_is_killed_and_that_is_no_success(nursery):
    nursery.teach("b", "deaf")
    supervisor = nursery.supervisor("a", "b", stop_within=timedelta(seconds=0.2))
    async with running(supervisor, nursery) as work:
        supervisor.stop()
        assert await work == 1
    assert nursery.heard("process.killed", process="b")
    assert not is_alive(nursery.started("b")[0])
