"""Node's side of the interop tests: its packages, installed once, and a process that does what it is told.

A pytest plugin: ``tests/conftest.py`` names it. ``node`` is the process of this pytest process; ``another_node`` starts
more of them, which a test may kill. One call is one line of JSON each way (``tests/interop/node/agent.mjs``), so many
may be under way at the same time, and the answers come in any order.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.valkey_server import absent

FOLDER = Path(__file__).parents[1] / "interop" / "node"
OLDEST_NODE = 20
_STAMP = "holdfast-lock-sha256"
_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")
_INSTALL_SECONDS = 300
"""Less than a test may take, so that what is wrong is told. What was downloaded by then is in npm's cache."""
_ANSWER_SECONDS = 120
_END_SECONDS = 60


class NodeError(Exception):
    """What Node threw. Its message is Node's."""


class Node:
    """One Node process with BullMQ in it. Usable from any event loop; calls may overlap."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "agent.mjs"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, concurrent.futures.Future[Any]] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="node answers", daemon=True)
        self._reader.start()

    async def __call__(self, command: str, **arguments: Any) -> Any:
        """What the command answers; :class:`NodeError` with Node's message where it throws."""
        number = next(self._numbers)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._waiting[number] = future
        line = json.dumps({"number": number, "command": command, **arguments})
        with self._writing:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_SECONDS)

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._process.kill()
        self._over()

    def freeze(self) -> None:
        """Stop it in its tracks."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if no time had passed."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Let it close its connections and end."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._over()

    def _over(self) -> None:
        self._process.wait()
        self._reader.join()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["number"])
            if future.cancelled():
                continue
            if "error" in answer:
                future.set_exception(NodeError(answer["error"]))
            else:
                future.set_result(answer.get("value"))
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(NodeError("the Node process has ended"))


@pytest.fixture(scope="session")
def node_packages() -> None:
    """BullMQ and bull-board, as ``package-lock.json`` pins them, in ``node_modules``."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            absent(f"there is no {program} here: the interop tests need Node {OLDEST_NODE} or newer, with npm")
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        absent(f"the interop tests need Node {OLDEST_NODE} or newer, not {version}")
    install()


def install() -> None:
    """Install once for all pytest processes, and again only when the lock file has changed."""
    wanted = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    stamp = FOLDER / "node_modules" / _STAMP
    with (FOLDER / ".installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        try:
            subprocess.run(
                ["npm", *_INSTALL], cwd=FOLDER, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"npm {' '.join(_INSTALL)} takes too long; run it by hand in {FOLDER}", pytrace=False)
        except subprocess.CalledProcessError as error:
            pytest.fail(f"npm {' '.join(_INSTALL)} in {FOLDER} failed:\n{error.stderr}", pytrace=False)
        stamp.write_text(wanted)


@pytest.fixture(scope="session")
def node(node_packages) -> Iterator[Node]:
    """The Node process of this pytest process."""
    process = Node()
    yield process
    process.stop()


@pytest.fixture
def another_node(node_packages) -> Iterator[Any]:
    """Starts one more Node process, which the test may kill."""
    started: list[Node] = []

    def start() -> Node:
        started.append(Node())
        return started[-1]

    yield start
    for process in started:
        process.stop()
