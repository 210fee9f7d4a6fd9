"""The race of the queues: jobs that do nothing, through our broker, Node's Worker and the stock Python Worker.

All on one Redis, with the same jobs (our broker adds them, about 500 bytes each) and the same number of finished jobs
kept. Everyone reads the job's JSON and returns null. They take turns, often and in another order each time, because a
shared machine is never equally fast for long; what counts is the median. A racer is warm and connected before its clock
starts, which stops when Redis has finished the last job.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import Place

KEEP = 1_000
CONCURRENCY = 50
PIPELINES, BATCH = 2, 50
_WARM = 5_000
"""Enough for Node to have compiled what is hot: its first jobs cost three times as much."""
_DATA = json.dumps(
    {
        "eventId": "evt_000000001",
        "eventType": "shipment.status.updated",
        "occurredAt": "2026-01-01T00:00:00.000Z",
        "source": "courier-bench",
        "payload": {
            "shipmentId": "shp_000001",
            "orderId": "ord_000001",
            "status": "out_for_delivery",
            "location": {"city": "Porto Alegre", "depot": "POA-3", "lat": -30.0346, "lon": -51.2177},
            "carrierNote": "Left the depot with the morning route; next scan at the door." * 2,
        },
    },
    separators=(",", ":"),
)
_RACER = "bench.cluster.racers"
_NODE_PROGRAM = Path(__file__).parent / "racers" / "node.mjs"
_ROOT = Path(__file__).parents[2]
_NODE_PACKAGES = _ROOT / "tests" / "interop" / "node"
# In a process of its own: the tests' support takes REDIS_URL and MONGO_URI, our servers' names, out of the environment.
_INSTALL = (sys.executable, "-c", "from tests.support.node import install; install()")
_RACE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Racer:
    """Who, and how to start them. ``share`` is the part of the jobs that a slow one gets, to end in reasonable time."""

    name: str
    command: tuple[str, ...]
    share: float = 1.0


OURS = Racer("ours", (sys.executable, "-m", f"{_RACER}.ours"))
STOCK = Racer("stock", (sys.executable, "-m", f"{_RACER}.stock"), share=0.2)
NODE = Racer("node", ("node", str(_NODE_PROGRAM), str(_NODE_PACKAGES)))


def node_versions() -> dict[str, str] | None:
    """The versions of Node and npm's bullmq, which is installed when it is not there; None without Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    installed = subprocess.run(_INSTALL, check=False, capture_output=True, text=True, cwd=_ROOT)
    if installed.returncode:
        print(f"Node's bullmq could not be installed: {installed.stderr}", file=sys.stderr)
        return None
    package = _NODE_PACKAGES / "node_modules" / "bullmq" / "package.json"
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return {"node": version, "bullmq": json.loads(package.read_text())["version"]}


def race(
    place: Place, *, jobs: int, runs: int, node: bool, tell: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of everyone who takes part, for working and for adding."""
    consumers = [OURS, *([NODE] if node else []), STOCK]
    producers = [OURS, *([NODE] if node else [])]
    worked: dict[str, list[dict[str, float]]] = {racer.name: [] for racer in consumers}
    added: dict[str, list[dict[str, float]]] = {racer.name: [] for racer in producers}
    for number in range(runs):
        for racer in _rotated(consumers, number):
            figures = _work(place, racer, jobs)
            tell(f"run {number + 1}: {racer.name} works {figures['per_second']:,.0f} jobs/s")
            worked[racer.name].append(figures)
        for racer in _rotated(producers, number):
            figures = _add(place, racer, jobs)
            tell(f"run {number + 1}: {racer.name} adds {figures['per_second']:,.0f} jobs/s")
            added[racer.name].append(figures)
    return {"work": _medians(worked), "add": _medians(added)}


def _rotated(racers: Sequence[Racer], number: int) -> list[Racer]:
    first = number % len(racers)
    return [*racers[first:], *racers[:first]]


def _work(place: Place, racer: Racer, jobs: int) -> dict[str, float]:
    count, warm = int(jobs * racer.share), int(_WARM * racer.share)
    for queue, size in (("warm", warm), ("race", count)):
        _run(place, OURS, _plan("add", size, queue=queue, warm=0))
    try:
        figures = _run(place, racer, _plan("work", count, warm=warm))
        _expect(place, racer, waiting=0, completed=min(KEEP, count))
        return figures
    finally:
        place.forget_keys(place.mark)


def _add(place: Place, racer: Racer, jobs: int) -> dict[str, float]:
    try:
        figures = _run(place, racer, _plan("add", jobs))
        _expect(place, racer, waiting=jobs, completed=0)
        return figures
    finally:
        place.forget_keys(place.mark)


def _expect(place: Place, racer: Racer, **expected: int) -> None:
    """A figure for work that was not done is none."""
    found = place.counts(place.mark, "race")
    if found != {**expected, "active": 0}:
        message = f"{racer.name} left {found} in the queue instead of {expected}."
        raise RuntimeError(message)


def _plan(what: str, count: int, *, queue: str = "race", warm: int = _WARM) -> dict[str, Any]:
    return {
        "what": what,
        "queue": queue,
        "warm_queue": "warm",
        "count": count,
        "warm": warm,
        "keep": KEEP,
        "concurrency": CONCURRENCY,
        "pipelines": PIPELINES,
        "batch": BATCH,
        "data": _DATA,
    }


def _run(place: Place, racer: Racer, plan: Mapping[str, Any]) -> dict[str, float]:
    count = plan["count"]
    with subprocess.Popen(racer.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            _say(process, {**plan, "url": place.redis_url, "prefix": place.mark})
            _hear(process)
            redis_before = place.redis_seconds()
            _say(process, "go")
            figures = _hear(process)
            redis_used = place.redis_seconds() - redis_before
            process.wait(_RACE_SECONDS)
        except BaseException:
            process.kill()
            raise
    return {
        "jobs": count,
        "seconds": figures["seconds"],
        "per_second": count / figures["seconds"],
        "cpu_us_per_job": 1e6 * figures["cpu_seconds"] / count,
        "redis_us_per_job": 1e6 * redis_used / count,
    }


def _say(process: subprocess.Popen[str], value: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    process.stdin.write(json.dumps(value) + "\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    line = process.stdout.readline()
    if not line:
        message = f"A racer ended without a figure: {' '.join(map(str, process.args))}"  # type: ignore[arg-type]
        raise RuntimeError(message)
    answer: dict[str, float] = json.loads(line)
    return answer


def _medians(figures: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The median of each figure, and the range of the rates."""
    result = {}
    for name, runs in figures.items():
        medians = {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        rates = [run["per_second"] for run in runs]
        result[name] = {**medians, "lowest": min(rates), "highest": max(rates), "runs": len(runs)}
    return result
