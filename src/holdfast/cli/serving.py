"""``up``, ``api``, ``worker``: processes that run until they are told to stop, and then drain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.config import Settings
from holdfast.wiring import run

from . import options
from .failures import Stop
from .opening import app_of
from .output import print_json, print_line
from .settings import settings_with

Host = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help="Listen here; otherwise API_HOST.", show_default=False),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65_535, help="Listen here; otherwise API_PORT. 0 takes a free one.", show_default=False
    ),
]
Ready = Annotated[bool, typer.Option("--json", help="Say that it is ready as a line of JSON.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", min=1, max=10_000, help="Jobs at a time; otherwise WORKER_CONCURRENCY.", show_default=False
    ),
]


def up(
    app: options.App = None,
    host: Host = None,
    port: Port = None,
    data: options.Data = None,
    json: Ready = False,
) -> None:
    """Run everything in one process: API, worker and upkeep.

    Stops on Ctrl-C or SIGTERM: open requests are answered, running jobs finish or are handed back at no attempt's cost.
    """
    settings = settings_with(api_host=host, api_port=port, holdfast_data=data)
    _serve(settings, app, json=json, api=True, worker=True)


def api(
    app: options.App = None,
    host: Host = None,
    port: Port = None,
    data: options.Data = None,
    json: Ready = False,
) -> None:
    """Run the API alone.

    It accepts and records; workers in other processes, on the same data folder, do the work.
    """
    settings = settings_with(api_host=host, api_port=port, holdfast_data=data)
    _serve(settings, app, json=json, api=True, worker=False)


def worker(
    app: options.App = None,
    concurrency: Concurrency = None,
    data: options.Data = None,
    json: Ready = False,
) -> None:
    """Run a worker, with upkeep, and no API.

    Any number of workers may share a data folder.
    """
    settings = settings_with(worker_concurrency=concurrency, holdfast_data=data)
    _serve(settings, app, json=json, api=False, worker=True)


def _serve(settings: Settings, app: str | None, *, json: bool, api: bool, worker: bool) -> None:
    problems = settings.secret_problems()
    if problems and not settings.holdfast_demo:
        message = "Holdfast does not start with secrets that guard nothing."
        raise Stop(message, *problems)
    workloads = app_of(app)

    def ready(address: str | None) -> None:
        with contextlib.suppress(BrokenPipeError):  # a server outlives whoever waited for this line
            _announce(address, settings.holdfast_data.absolute(), json=json)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run(settings, workloads, api=api, worker=worker, ready=ready))


def _announce(address: str | None, data: Path, *, json: bool) -> None:
    if json:
        print_json({"ready": True, "address": address, "data": str(data)}, one_line=True)
        return
    what = "The worker is ready" if address is None else f"Ready on {address} (API documentation: {address}/docs)"
    print_line(f"{what}; data in {data}. Ctrl-C or SIGTERM stops it and loses nothing.")


def _loop_factory() -> Callable[[], Any] | None:
    """uvloop, where there is one (not on Windows)."""
    try:
        import uvloop  # noqa: PLC0415 - an optional part of the platform
    except ImportError:
        return None
    return uvloop.new_event_loop
