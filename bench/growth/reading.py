"""How long lists and pages take on a store of some size: over HTTP, and as commands, which start a process each."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bench.gateway import Gateway, running

_TIMES: Final = 7
_COMMAND_TIMES: Final = 3


def measure_pages(data: Path) -> dict[str, float]:
    """The median of some requests for each page, in milliseconds."""
    token = secrets.token_urlsafe(32)
    key, letter = _examples(data)
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    jobs = "/v1/jobs/courier"
    pages = {
        "jobs": jobs,
        "jobs, by status processed": f"{jobs}?status=processed",
        "jobs, by status received": f"{jobs}?status=received",
        "jobs, by status dead_lettered": f"{jobs}?status=dead_lettered",
        "jobs, by label": f"{jobs}?label={urllib.parse.quote('shipmentId=shp_000007')}",
        "jobs, by time": f"{jobs}?before={urllib.parse.quote(hour_ago)}",
        "jobs, by key": f"{jobs}?key={urllib.parse.quote(key)}",
        "one job": f"{jobs}/{urllib.parse.quote(key)}",
        "dead letters": "/v1/dead-letters",
        "dead letters, pending": "/v1/dead-letters?reviewStatus=pending",
        "one dead letter": f"/v1/dead-letters/{letter}",
    }
    with running("api", data, settings={"OPERATOR_TOKEN": token}) as gateway:
        return {
            name: statistics.median(_get(gateway, path, token) for _ in range(_TIMES)) for name, path in pages.items()
        }


def measure_commands(data: Path) -> dict[str, float]:
    """The median of some runs of each command, in milliseconds. Most of it is the start of Python."""
    key, letter = _examples(data)
    commands = {
        "--version": ("--version",),
        "jobs list": ("jobs", "list", "--json"),
        "jobs list --status processed": ("jobs", "list", "--status", "processed", "--json"),
        "jobs list --where": ("jobs", "list", "-w", "courier", "--where", "shipmentId=shp_000007", "--json"),
        "jobs list --until": ("jobs", "list", "--until", "1h", "--json"),
        "jobs list --key 'prefix*'": ("jobs", "list", "-w", "courier", "--key", f"{key[:-3]}*", "--json"),
        "jobs show": ("jobs", "show", key, "--json"),
        "dlq list": ("dlq", "list", "--json"),
        "dlq list --status pending": ("dlq", "list", "--status", "pending", "--json"),
        "dlq show": ("dlq", "show", letter, "--json"),
    }
    return {
        name: statistics.median(_run(data, command) for _ in range(_COMMAND_TIMES))
        for name, command in commands.items()
    }


def _examples(data: Path) -> tuple[str, str]:
    with sqlite3.connect(f"file:{data / 'holdfast.db'}?mode=ro", uri=True) as connection:
        key = connection.execute(
            "SELECT key FROM ledger_entries WHERE workload = 'courier' AND status = 'processed' LIMIT 1"
        ).fetchone()[0]
        letter = connection.execute("SELECT id FROM dead_letters LIMIT 1").fetchone()[0]
    connection.close()
    return str(key), str(letter)


def _get(gateway: Gateway, path: str, token: str) -> float:
    request = urllib.request.Request(
        f"http://{gateway.host}:{gateway.port}{path}", headers={"authorization": f"Bearer {token}"}
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
        json.load(answer)
    return 1000 * (time.perf_counter() - began)


def _run(data: Path, command: tuple[str, ...]) -> float:
    environment = {
        **os.environ,
        "HOLDFAST_DATA": str(data),
        "OPERATOR_TOKEN": secrets.token_urlsafe(32),
        "COURIER_SECRETS": json.dumps({"bench": [secrets.token_urlsafe(32)]}),
    }
    began = time.perf_counter()
    finished = subprocess.run(
        [sys.executable, "-m", "holdfast", *command], env=environment, capture_output=True, text=True, check=False
    )
    if finished.returncode:
        message = f"holdfast {' '.join(command)} failed: {finished.stderr[-300:]}"
        raise RuntimeError(message)
    return 1000 * (time.perf_counter() - began)
