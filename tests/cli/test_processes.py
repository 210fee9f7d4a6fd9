"""``--processes``: several real processes on one port and one ledger, under one parent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections import Counter

import httpx
import pytest

from tests.cli.commands import ENVIRONMENT, assert_no_secrets
from tests.support.program import Server, command_of, is_alive, started, stop, wait_until
from tests.support.waiting import eventually

LONG = 60


def settled(program, count: int) -> bool:
    said = program("events", "list", "--status", "processed", "--limit", "1000", "--json")
    return said.code == 0 and len(said.json["items"]) == count


@pytest.fixture
def near(program, monkeypatch):
    """The program, next to a running server."""

    def beside(server: Server):
        monkeypatch.setenv("HOLDFAST_DATA", str(server.data))
        monkeypatch.setenv("API_PORT", server.address.rpartition(":")[2])
        return program

    return beside


def test_up_with_processes_keeps_the_api_apart_and_replaces_what_dies(tmp_path, near):
    with started(tmp_path, ENVIRONMENT, "up", "--processes", "2", "--port", "0", "--json") as server:
        (api,) = server.pids("api")
        workers = server.pids("worker")
        assert len(workers) == 2
        program = near(server)
        assert program("send", "--count", "50").code == 0
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert program("send", "--count", "50").code == 0
        wait_until(lambda: settled(program, 100))
        assert [lost["process"] for lost in server.heard("process.lost")] == ["worker", "worker"]
        assert is_alive(api)
        assert_no_secrets(stop(server) + server.log.read_text())
        wait_until(lambda: not is_alive(api))


def test_a_killed_api_process_refuses_no_connection(tmp_path, near):
    """The parent holds the socket: who connects while no API process is there waits for the next one."""
    with started(tmp_path, ENVIRONMENT, "up", "--processes", "1", "--port", "0", "--json") as server:
        (api,) = server.pids("api")
        os.kill(api, signal.SIGKILL)
        wait_until(lambda: not is_alive(api))
        assert httpx.get(f"{server.address}/health", timeout=LONG).status_code == 200
        stop(server)


def test_several_apis_share_one_port_and_a_rolling_restart_refuses_nobody(tmp_path, near):
    with started(tmp_path, ENVIRONMENT, "api", "--processes", "2", "--port", "0", "--json") as server:
        before = server.pids("api")
        answers: Counter[str] = Counter()
        context = ssl.create_default_context()  # nothing here is encrypted, and each client would make one

        async def asking(done: asyncio.Event) -> None:
            while not done.is_set():
                # A connection for each question: an idle one may be closed by a server that stops, at any time.
                async with httpx.AsyncClient(timeout=LONG, verify=context) as client:
                    answer = await client.get(f"{server.address}/health")
                    answers[str(answer.status_code)] += 1
                await asyncio.sleep(0.01)  # the processes that restart need the processor too

        async def roll() -> None:
            done = asyncio.Event()
            askers = [asyncio.create_task(asking(done)) for _ in range(4)]
            server.process.send_signal(signal.SIGHUP)
            await eventually(lambda: server.heard("restart.done"), within=LONG)
            done.set()
            await asyncio.gather(*askers)

        asyncio.run(roll())
        assert set(answers) == {"200"}
        assert not any(map(is_alive, before))
        assert server.heard("process.lost") == []
        stop(server)


def test_the_children_do_not_outlive_a_parent_that_was_killed(tmp_path, near):
    with started(tmp_path, ENVIRONMENT, "up", "--processes", "1", "--port", "0", "--json") as server:
        children = server.pids("api") + server.pids("worker")
        port = int(server.address.rpartition(":")[2])
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, children)))
        socket.create_server(("127.0.0.1", port)).close()
        assert len(server.heard("worker.stopped")) == 1, "it must have stopped in order"


def test_workers_with_processes_and_concurrency(tmp_path):
    arguments = ("worker", "--processes", "2", "--concurrency", "3", "--json")
    with started(tmp_path, ENVIRONMENT, *arguments) as server:
        assert server.told["address"] is None
        pids = server.pids("worker")
        assert len(pids) == 2
        assert all("--concurrency 3" in command_of(pid) for pid in pids)
        stop(server)
        wait_until(lambda: not any(map(is_alive, pids)))


def test_a_start_that_cannot_succeed_is_told_once_and_ends_in_its_exit_code(tmp_path):
    arguments = ("worker", "--processes", "3", "--app", "no_such_module_at_all:app")
    with started(tmp_path, ENVIRONMENT, *arguments) as server:
        assert server.first_line == ""
        assert server.process.wait(LONG) == 2
        log = server.log.read_text()
        assert "no_such_module_at_all" in log
        assert log.count("Error:") == 1


def test_for_people_the_number_of_processes_is_told(tmp_path):
    with started(tmp_path, ENVIRONMENT, "worker", "--processes", "2") as server:
        assert server.first_line.startswith("2 workers are ready in 2 processes; data in ")
        assert "SIGHUP" in server.first_line
        stop(server)


@pytest.mark.parametrize(
    "arguments",
    [("up", "--processes", "0"), ("worker", "--processes", "-1"), ("api", "--processes", "1000")],
)
def test_a_number_of_processes_that_makes_no_sense(program, arguments):
    assert program(*arguments).code == 2


def test_api_processes_alone_say_too_little(program):
    said = program("up", "--api-processes", "2")
    assert said.code == 2
    assert "--processes" in said.err


def test_the_options_of_a_parent_are_not_for_people(program):
    assert "lifeline" not in program("worker", "--help").out
    assert "listener" not in program("api", "--help").out
    said = program("worker", "--lifeline", "999")
    assert said.code == 2
    assert "--processes" in said.err
