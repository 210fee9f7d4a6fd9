"""One system in one round: submit a backlog, start its worker, work the backlog, then submit and work together.

The first tenth of the backlog warms the worker and is not measured. The clock of the last part runs from the first
submission until every handler has run and the system itself has nothing left. Processor time is that of all processes:
the worker and what it started, the servers, and in the last part the submitting process.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from pymongo import MongoClient

from bench.cluster import queues
from bench.cluster.system import a_stage
from bench.processor_time import used_by_tree

from .catalogue import APPEND_ONLY, CLUSTER, EMBEDDED, NODE, POSTGRES, SNAPSHOTS, System
from .counter import total
from .libraries import Libraries
from .plan import AT_ONCE, VARIABLE, content
from .servers import Servers

Figures = dict[str, float]

_ROOT: Final = Path(__file__).parents[2]
_NODE_PROGRAM: Final = Path(__file__).parent / "systems" / NODE.module
_NODE_PACKAGES: Final = _ROOT / "tests" / "interop" / "node"
_LOOK_EVERY: Final = 0.002
_STOP_SECONDS: Final = 15.0
_UNSETTLED: Final = ("received", "processing", "failed")
_UNSETTLED_ROWS: Final = """
SELECT count(*) FROM ledger_entries WHERE workload = 'noop' AND status IN ('received', 'processing', 'failed')
"""


class NotMeasured(Exception):
    """A system has no figure. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and how long one part may take."""

    jobs: int
    warm: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Site:
    """An empty place for one round of one system."""

    system: System
    folder: Path
    servers: Servers
    python: tuple[str, ...]
    settings: Mapping[str, str] = field(repr=False)
    left: Callable[[], int] = field(repr=False)
    """How many jobs the system itself still has."""

    @property
    def counts(self) -> Path:
        """Where the handlers count."""
        return self.folder / "counts"

    def environment(self) -> dict[str, str]:
        """What the processes of the system are told."""
        plan: dict[str, Any] = {"folder": str(self.folder), "counts": str(self.counts), "at_once": AT_ONCE}
        for name in self.system.servers:
            if name in {APPEND_ONLY, SNAPSHOTS}:
                plan["redis"] = self.servers.need(name).url
            elif name == POSTGRES:
                plan["postgres"] = self.servers.need(name).url(self.folder.name)
        if self.system is NODE:
            plan["content"] = content(0)
        return {**os.environ, **self.settings, VARIABLE: json.dumps(plan)}

    def used(self, worker: int) -> float:
        """Processor time so far of the worker and the servers, in seconds."""
        return used_by_tree(worker) + sum(used_by_tree(self.servers.pid(name)) for name in self.system.servers)

    def log_tail(self) -> str:
        """The last line that the worker wrote."""
        lines = (self.folder / "worker.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it wrote nothing"


def measure(system: System, servers: Servers, libraries: Libraries, folder: Path, plan: Plan) -> Figures:
    """The figures of one round. Raises :class:`NotMeasured`, or what the servers raise."""
    with contextlib.ExitStack() as stack:
        site = _site(system, servers, libraries, folder, stack)
        if system.prepared:
            _prepare(site)
        with _submitting(site, first=0, warm=0, count=plan.jobs) as submit:
            submitted = submit()
        with _working(site) as worker:
            worked, work_used = _work(site, plan, worker)
            with _submitting(site, first=1_000_000, warm=plan.warm, count=plan.jobs) as submit:
                before = plan.jobs + plan.warm
                _until(site, before, plan, worker)
                used, began = site.used(worker.pid), time.perf_counter()
                both = submit()
                _until(site, before + plan.jobs, plan, worker)
                seconds = time.perf_counter() - began
                both_used = site.used(worker.pid) - used + both["cpu_seconds"]
    return {
        "submit_per_second": plan.jobs / submitted["seconds"],
        "work_per_second": worked,
        "work_cpu_us": work_used,
        "both_per_second": plan.jobs / seconds,
        "both_cpu_us": 1e6 * both_used / plan.jobs,
    }


def _work(site: Site, plan: Plan, worker: subprocess.Popen[bytes]) -> tuple[float, float]:
    """The worker alone on its backlog: jobs a second, and microseconds of processor time for each."""
    _until(site, plan.jobs // 10, plan, worker, empty=False)
    used, began, done = site.used(worker.pid), time.perf_counter(), total(site.counts)
    _until(site, plan.jobs, plan, worker)
    seconds, jobs = time.perf_counter() - began, plan.jobs - done
    if jobs < plan.jobs / 4:
        message = "The backlog was too small for a figure: give more --jobs."
        raise NotMeasured(message)
    return jobs / seconds, 1e6 * (site.used(worker.pid) - used) / jobs


def _until(site: Site, count: int, plan: Plan, worker: subprocess.Popen[bytes], *, empty: bool = True) -> None:
    """Wait until the handlers have run so many jobs, and the system has none left."""
    end = time.monotonic() + plan.seconds
    while (found := total(site.counts)) < count or (empty and site.left()):
        if worker.poll() is not None:
            message = f"The worker ended: {site.log_tail()}"
            raise NotMeasured(message)
        if time.monotonic() > end:
            message = f"{found:,} of {count:,} jobs after {plan.seconds:,.0f} s: {site.log_tail()}"
            raise NotMeasured(message)
        time.sleep(_LOOK_EVERY)


# --- processes ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _working(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """The worker of the system, in a process group of its own."""
    command = [*site.python, "-m", *site.system.worker]
    if site.system is NODE:
        command = ["node", str(_NODE_PROGRAM), str(_NODE_PACKAGES), "work"]
    with (site.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            command, env=site.environment(), stdout=log, stderr=log, cwd=_ROOT, start_new_session=True
        )
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextlib.contextmanager
def _submitting(site: Site, **asked: int) -> Iterator[Callable[[], Figures]]:
    """A process that is connected and warm. Calling the value submits all jobs and returns the process's figures."""
    command = [*site.python, "-m", "bench.peers.submit", site.system.module]
    if site.system is NODE:
        command = ["node", str(_NODE_PROGRAM), str(_NODE_PACKAGES), "submit"]
    with (site.folder / "submit.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=site.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=_ROOT,
            start_new_session=True,
        )

    def ask(line: object) -> dict[str, Any]:
        assert process.stdin is not None  # noqa: S101 - a pipe
        assert process.stdout is not None  # noqa: S101 - a pipe
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
        while answer := process.stdout.readline():
            if answer.startswith("{"):  # a library may print too
                found: dict[str, Any] = json.loads(answer)
                return found
        lines = (site.folder / "submit.log").read_text(errors="replace").strip().splitlines()
        message = f"Submitting failed: {lines[-1][:200] if lines else 'no message'}"
        raise NotMeasured(message)

    try:
        ask(asked)
        yield lambda: ask("go")
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_STOP_SECONDS)
        process.kill()
        process.communicate()


def _prepare(site: Site) -> None:
    made = subprocess.run(
        [*site.python, "-m", "bench.peers.submit", site.system.module, "--prepare"],
        env=site.environment(),
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if made.returncode:
        message = f"Its tables could not be made: {made.stderr.strip().splitlines()[-1:]}"
        raise NotMeasured(message)


# --- places -------------------------------------------------------------------------------------------------------


def _site(system: System, servers: Servers, libraries: Libraries, root: Path, stack: contextlib.ExitStack) -> Site:
    for name in system.servers:
        servers.need(name)
    folder = Path(tempfile.mkdtemp(prefix=f"{system.name.replace('-', '_')}_", dir=root))
    (folder / "counts").mkdir()
    python: tuple[str, ...] = (sys.executable,)
    settings: dict[str, str] = {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path[1:]])}
    left: Callable[[], int]
    if system is EMBEDDED or system is CLUSTER:
        settings |= {
            "HOLDFAST_APP": "bench.peers.systems.holdfast_jobs:app",
            "HOLDFAST_DATA": str(folder / "data"),
            "LOG_FORMAT": "json",
            "OPERATOR_TOKEN": secrets.token_urlsafe(32),
            "COURIER_SECRETS": json.dumps({"bench": [secrets.token_urlsafe(32)]}),
        }
    if system is EMBEDDED:
        left = _rows_left(folder / "data" / "holdfast.db", _UNSETTLED_ROWS, stack)
    elif system is CLUSTER:
        stage = stack.enter_context(a_stage(servers.place(), folder, settings))
        settings |= stage.settings
        left = _entries_left(stage.settings, stack)
    else:
        if system is NODE:
            if queues.node_versions() is None:
                message = "Node, npm or npm's bullmq is missing."
                raise NotMeasured(message)
        elif system.library:
            python, settings["PYTHONPATH"] = libraries.python(system.library, _ROOT)
        left = _left_of(system, servers, folder, stack)
    return Site(system, folder, servers, python, settings, left)


def _left_of(system: System, servers: Servers, folder: Path, stack: contextlib.ExitStack) -> Callable[[], int]:
    if POSTGRES in system.servers:
        postgres = servers.need(POSTGRES)
        postgres.ask("postgres", f'CREATE DATABASE "{folder.name}"')
        return lambda: int(postgres.ask(folder.name, system.left[0]))
    if system.servers:
        servers.empty(system.servers[0])
        client = stack.enter_context(contextlib.closing(redis.Redis.from_url(servers.need(system.servers[0]).url)))
        return lambda: sum(_size(client, key) for key in system.left)
    if system.left:
        return _rows_left(folder / system.left[0], system.left[1], stack)
    return lambda: 0


def _size(client: Any, key: str) -> int:  # noqa: ANN401 - a client of Redis
    measures = {b"list": client.llen, b"zset": client.zcard, b"hash": client.hlen, b"set": client.scard}
    measure_of = measures.get(client.type(key))
    return int(measure_of(key)) if measure_of else 0


def _rows_left(file: Path, query: str, stack: contextlib.ExitStack) -> Callable[[], int]:
    opened: list[sqlite3.Connection] = []

    def left() -> int:
        if not opened:
            opened.append(stack.enter_context(contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True))))
        return int(opened[0].execute(query).fetchone()[0])

    return left


def _entries_left(settings: Mapping[str, str], stack: contextlib.ExitStack) -> Callable[[], int]:
    client: MongoClient[dict[str, Any]] = stack.enter_context(MongoClient(settings["MONGO_URI"]))
    entries = client[settings["MONGO_DB_NAME"]]["noop_jobs"]
    query = {"status": {"$in": list(_UNSETTLED)}}
    return lambda: int(entries.find_one(query, {"_id": 1}) is not None)
