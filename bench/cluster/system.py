"""The whole gateway on Redis and MongoDB: real processes, signed courier events, journaled majority commits."""

from __future__ import annotations

import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis
from pymongo import MongoClient

from bench.gateway import generate_load, running
from bench.processor_time import Meter

from .places import Place

Figures = dict[str, Any]

LEDGER = "processed_events"
QUEUE = "courier-events-main"
_WARM = 2_000
_WARM_KEYS = 900_000_000
_DRAIN_SECONDS = 300.0
_LOOK_EVERY = 0.05
_USED = "cpu_us_per_event"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and how often."""

    count: int
    connections: int
    workers: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A database and a queue of their own, empty and migrated."""

    place: Place
    folder: Path
    settings: Mapping[str, str]

    @property
    def data(self) -> Path:
        """Where nothing is kept in a cluster; the logs are beside it."""
        return self.folder / "data"


@contextlib.contextmanager
def a_stage(place: Place, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """Prepare, and clear away afterwards. ``more`` are further settings."""
    name = f"{place.mark}{secrets.token_hex(3)}"
    settings = {
        "REDIS_URL": place.redis_url,
        "MONGO_URI": place.mongo_uri,
        "MONGO_DB_NAME": name,
        "QUEUE_PREFIX": name,
        **(more or {}),
    }
    migrated = subprocess.run(
        [sys.executable, "-m", "holdfast", "migrate"],
        env={**os.environ, **settings},
        check=False,
        capture_output=True,
        text=True,
    )
    if migrated.returncode:
        message = f"holdfast migrate failed: {migrated.stderr}"
        raise RuntimeError(message)
    home = folder / name
    home.mkdir()
    try:
        yield Stage(place, home, settings)
    finally:
        place.forget_keys(name)
        place.forget_database(name)


def measure_intake(stage: Stage, plan: Plan) -> Figures:
    """One API process: each post is answered after its journaled majority commit and its publishing."""
    with running("api", stage.data, settings=stage.settings) as gateway:
        generate_load(gateway, count=min(_WARM, plan.count), connections=plan.connections, first=_WARM_KEYS)
        meter = _meter(stage, api=gateway.process.pid)
        figures: Figures = dict(generate_load(gateway, count=plan.count, connections=plan.connections))
        # The load generator starts and signs first; the others are idle then, so all time they used is the posts'.
        figures[_USED] = {**meter.microseconds_each(plan.count), **_load_generator(figures)}
    return figures


def measure_work(stage: Stage) -> Figures:
    """One worker process on the backlog that the intake left, from its readiness to the last effect."""
    with running("worker", stage.data, settings=stage.settings) as gateway:
        meter = _meter(stage, worker=gateway.process.pid)
        began = time.time()
        events, finished = _wait_until_settled(stage)
        used = meter.microseconds_each(events)
    seconds = finished - began
    return {"events": events, "seconds": seconds, "per_second": events / seconds, _USED: used}


def measure_both(stage: Stage, plan: Plan) -> Figures:
    """An API process and some worker processes together, from the first post to the last effect."""
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(running("api", stage.data, settings=stage.settings))
        pids = {
            f"worker {number}": stack.enter_context(running("worker", stage.data, settings=stage.settings)).process.pid
            for number in range(1, plan.workers + 1)
        }
        meter = _meter(stage, api=gateway.process.pid, **pids)
        intake = generate_load(gateway, count=plan.count, connections=plan.connections)
        events, finished = _wait_until_settled(stage)
        used = {**meter.microseconds_each(events), **_load_generator(intake)}
    seconds = finished - intake["started_at"]
    return {
        "events": events,
        "refused": intake["refused"],
        "seconds": seconds,
        "per_second": events / seconds,
        "intake_per_second": intake["per_second"],
        "p50_ms": intake["p50_ms"],
        "p99_ms": intake["p99_ms"],
        "workers": plan.workers,
        _USED: used,
    }


def measure(place: Place, folder: Path, plan: Plan, tell: Callable[[str], None]) -> dict[str, Figures]:
    """Every measurement in each round, on a fresh database and queue; medians of the rounds."""
    runs: dict[str, list[Figures]] = {"intake": [], "work": [], "both": []}
    for number in range(plan.rounds):
        with a_stage(place, folder) as stage:
            runs["intake"].append(measure_intake(stage, plan))
            tell(f"round {number + 1}: intake {runs['intake'][-1]['per_second']:,.0f} requests/s")
            runs["work"].append(measure_work(stage))
            tell(f"round {number + 1}: worker {runs['work'][-1]['per_second']:,.0f} events/s")
        with a_stage(place, folder) as stage:
            runs["both"].append(measure_both(stage, plan))
            tell(f"round {number + 1}: first post to last effect {runs['both'][-1]['per_second']:,.0f} events/s")
    return {name: _medians(each) for name, each in runs.items()}


def _medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure, and the range of the rates."""
    result: Figures = {
        name: statistics.median(run[name] for run in runs) for name, value in runs[0].items() if name != _USED
    }
    rates = [run["per_second"] for run in runs]
    result |= {"lowest": min(rates), "highest": max(rates), "rounds": len(runs)}
    result[_USED] = {name: statistics.median(run[_USED][name] for run in runs) for name in runs[0][_USED]}
    if "refused" in result:
        result["refused"] = sum(run["refused"] for run in runs)
    return result


def _meter(stage: Stage, **pids: int) -> Meter:
    return Meter(**pids, redis=stage.place.redis_pid, mongod=stage.place.mongo_pid)


def _load_generator(figures: Mapping[str, float]) -> dict[str, float]:
    return {"load generator": 1e6 * figures["cpu_seconds"] / figures["requests"]}


def _wait_until_settled(stage: Stage) -> tuple[int, float]:
    """How many events were processed, and when the last one was, on this machine's clock.

    The queue is looked at often and the ledger only when the queue is empty, to stay out of the way.
    """
    deadline = time.monotonic() + _DRAIN_SECONDS
    keys = [f"{stage.settings['QUEUE_PREFIX']}:{QUEUE}:{name}" for name in ("wait", "active")]
    mongo: MongoClient[dict[str, Any]]
    with (
        contextlib.closing(redis.Redis.from_url(stage.place.redis_url)) as queue,
        MongoClient(stage.place.mongo_uri, tz_aware=True) as mongo,
    ):
        ledger = mongo[stage.settings["MONGO_DB_NAME"]][LEDGER]
        ahead = _ahead(mongo)
        while time.monotonic() < deadline:
            if not any(queue.llen(key) for key in keys) and not ledger.count_documents(
                {"status": {"$ne": "processed"}}
            ):
                last = ledger.find_one({"status": "processed"}, sort=[("updatedAt", -1)])
                if last is not None:
                    return ledger.count_documents({}), (last["updatedAt"] - ahead).timestamp()
            time.sleep(_LOOK_EVERY)
    message = f"The backlog was not worked off in time; logs in {stage.folder}"
    raise RuntimeError(message)


def _ahead(mongo: MongoClient[dict[str, Any]]) -> timedelta:
    """How far MongoDB's clock is ahead of ours."""
    theirs: datetime = mongo.admin.command("hello", codec_options=mongo.codec_options)["localTime"]
    return theirs - datetime.now(UTC)
