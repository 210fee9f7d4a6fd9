"""The cost of a job on a store of some size: intake alone, then the worker alone, in wall time and processor time."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any, Final

from bench.gateway import generate_load, running
from bench.processor_time import used_by

_SINCE: Final = """
SELECT count(*) FROM ledger_entries WHERE workload = 'courier' AND status = 'processed' AND updated_at >= :since
"""
_LOOK_EVERY: Final = 0.01
_SECONDS: Final = 300.0

Figures = dict[str, Any]


def measure_intake(data: Path, *, count: int, first: int) -> Figures:
    """Signed posts over 50 connections, after some that warm the process."""
    with running("api", data) as gateway:
        warm = max(50, count // 10)
        generate_load(gateway, count=warm, connections=50, first=first)
        before = used_by(gateway.process.pid)
        figures = generate_load(gateway, count=count, connections=50, first=first + warm)
        after = used_by(gateway.process.pid)
    return {
        "per_second": figures["per_second"],
        "p99_ms": figures["p99_ms"],
        "cpu_us": None if before is None or after is None else 1e6 * (after - before) / count,
    }


def measure_work(data: Path, *, count: int) -> Figures:
    """The worker on a backlog, until it has settled ``count`` jobs. The first tenth warms it."""
    since = _now_ms()
    with (
        contextlib.closing(sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True)) as connection,
        running("worker", data) as gateway,
    ):
        done = _until(connection, since, count // 10)
        began, before = time.perf_counter(), used_by(gateway.process.pid)
        end = _until(connection, since, count)
        seconds, after = time.perf_counter() - began, used_by(gateway.process.pid)
    jobs = end - done
    return {
        "per_second": jobs / seconds,
        "cpu_us": None if before is None or after is None else 1e6 * (after - before) / jobs,
    }


def _until(connection: sqlite3.Connection, since: int, count: int) -> int:
    deadline = time.monotonic() + _SECONDS
    while (found := int(connection.execute(_SINCE, {"since": since}).fetchone()[0])) < count:
        if time.monotonic() > deadline:
            message = f"{found} of {count} jobs were settled in time."
            raise RuntimeError(message)
        time.sleep(_LOOK_EVERY)
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)


def size_on_disk(data: Path) -> int:
    """The pages of the file that are in use."""
    with contextlib.closing(sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size
