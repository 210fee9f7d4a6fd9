"""The real program, ``holdfast <arguments>``, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A running program. ``first_line`` is empty when it ended before it was ready."""

    process: subprocess.Popen[str]
    data: Path
    first_line: str
    log: Path

    @property
    def told(self) -> dict[str, Any]:
        """What it said about itself with ``--json``."""
        return json.loads(self.first_line)

    @property
    def address(self) -> str:
        return self.told["address"]

    def pids(self, name: str) -> list[int]:
        """The processes that it started first, under this name."""
        return [each["pid"] for each in self.told["processes"] if each["process"] == name]

    def heard(self, event: str) -> list[dict[str, Any]]:
        """What it logged under this name so far; the log must be JSON."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


@contextmanager
def started(folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[Server]:
    """``holdfast <arguments>``, ready or ended; killed at the end of the block if it is still there."""
    with started_later(folder, environment, *arguments) as server:
        yield replace(server, first_line=server.process.stdout.readline())


@contextmanager
def started_later(folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[Server]:
    """Likewise, without waiting for it."""
    data = folder / "holdfast-data"
    log = folder / f"{arguments[0]}.log"
    environment = {**os.environ, "HOLDFAST_DATA": str(data), "PYTHONWARNINGS": "error", **environment}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=ROOT,
        )
    try:
        yield Server(process, data, "", log)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ran(environment: Mapping[str, str], *arguments: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """``holdfast <arguments>`` to its end, in a process of its own, which does what ``first`` says before all else.

    For what leaves something behind: pymongo, when it is closed while it still tries to connect, forgets its socket.
    """
    code = f"import sys\n{first}\nfrom holdfast.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * START_SECONDS,
    )


def stop(server: Server) -> str:
    """SIGTERM, which it must answer with exit code 0; what it still said on standard output."""
    server.process.send_signal(signal.SIGTERM)
    rest, _ = server.process.communicate(timeout=START_SECONDS)
    assert server.process.returncode == 0, server.log.read_text()
    return rest


def wait_until(condition: Callable[[], Any], *, within: float = START_SECONDS) -> Any:
    """Poll until the condition holds. The deadline is there so that a broken program fails instead of hanging."""
    began = time.monotonic()
    end = began + within
    while not (answer := condition()):
        looked = time.monotonic()
        assert looked < end, f"not so within {within} s"
        # Whoever is waited for needs the processor too: looking takes no more than a third of the time.
        time.sleep(max(0.02, 2 * (looked - began)))
        began = time.monotonic()
    return answer


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be noticed does not."""
    state = _ps(pid, "stat")
    return bool(state) and not state.startswith("Z")


def command_of(pid: int) -> str:
    """How the process was started."""
    return _ps(pid, "args")


def _ps(pid: int, column: str) -> str:
    return subprocess.run(
        ["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
