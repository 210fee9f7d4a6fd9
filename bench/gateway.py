"""Starting and stopping the program under measurement, as an operator would."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = "courier-bench"
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running process."""

    process: subprocess.Popen[str]
    host: str
    port: int
    secret: str


@contextlib.contextmanager
def running(
    command: str, data: Path, secret: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """``holdfast <command>`` on a data folder, with default settings but for the secrets, a free port and ``settings``.

    One source may send as fast as it can. In a cluster, which ``settings`` name, the folder only gives the log a place.
    """
    secret = secret or secrets.token_urlsafe(32)
    environment = {
        **os.environ,
        "HOLDFAST_DATA": str(data),
        "API_PORT": "0",
        "OPERATOR_TOKEN": secrets.token_urlsafe(32),
        "COURIER_SECRETS": json.dumps({SOURCE: [secret]}),
        "COURIER_REQUESTS_PER_SECOND": "1000000",  # the load has one source, and the limit of a source is no aim here
        "LOG_FORMAT": "json",
        **(settings or {}),
    }
    with (data.parent / f"{command}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", command, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            line = process.stdout.readline()
            if not line:
                message = f"holdfast {command} did not start; see {log.name}"
                raise RuntimeError(message)
            address = json.loads(line).get("address") or "http://127.0.0.1:0"
            host, port = address.removeprefix("http://").rsplit(":", 1)
            yield Gateway(process, host, int(port), secret)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    if process.poll() is None:
        process.kill()
        process.wait()


def generate_load(gateway: Gateway, *, count: int, connections: int, first: int = 0) -> dict[str, float]:
    """Run the load generator in a process of its own; return its figures."""
    plan = {
        "host": gateway.host,
        "port": gateway.port,
        "source": SOURCE,
        "secret": gateway.secret,
        "count": count,
        "connections": connections,
        "first": first,
    }
    finished = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    figures: dict[str, float] = json.loads(finished.stdout)
    return figures
