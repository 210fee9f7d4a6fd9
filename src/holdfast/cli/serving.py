"""``up``, ``api``, ``worker``: processes that run until a stop signal, and then drain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.config import Settings
from holdfast.contracts.errors import StoreUnavailable
from holdfast.installed import require_libraries
from holdfast.telemetry import attach, detach
from holdfast.telemetry.logs import LogExporter
from holdfast.wiring import address_of, listen, run

from . import options
from .failures import REFUSED, Stop
from .opening import app_of, settings_with
from .output import print_json, print_line
from .supervision import Duty, Member, Supervisor, end_with_parent, inherited_listener, keep_private, tell_ready

Host = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help="The address to listen on; otherwise API_HOST.", show_default=False),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65_535,
        help="The port to listen on; otherwise API_PORT. 0: any free port.",
        show_default=False,
    ),
]
Ready = Annotated[bool, typer.Option("--json", help="Print the ready message as a line of JSON.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        max=10_000,
        help="Parallel jobs in each worker; otherwise WORKER_CONCURRENCY.",
        show_default=False,
    ),
]
_MOST_PROCESSES = 256
WorkerProcesses = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=_MOST_PROCESSES,
        help="Number of worker processes; a parent watches and restarts them.",
        show_default=False,
    ),
]
ApiProcesses = Annotated[
    int | None,
    typer.Option(
        "--processes",
        min=1,
        max=_MOST_PROCESSES,
        help="Number of API processes on one port; a parent watches and restarts them.",
        show_default=False,
    ),
]
ApisOfUp = Annotated[
    int | None,
    typer.Option(
        "--api-processes",
        min=1,
        max=_MOST_PROCESSES,
        help="With --processes: number of API processes; otherwise one.",
        show_default=False,
    ),
]
# A parent passes these to the processes that it starts.
Lifeline = Annotated[int | None, typer.Option("--lifeline", hidden=True)]
Listener = Annotated[int | None, typer.Option("--listener", hidden=True)]


@dataclass(frozen=True, slots=True)
class _Part:
    """The parts that this process runs, and the descriptors from its parent, if it has one."""

    api: bool
    worker: bool
    lifeline: int | None = None
    listener: int | None = None


def up(
    app: options.App = None,
    host: Host = None,
    port: Port = None,
    processes: WorkerProcesses = None,
    api_processes: ApisOfUp = None,
    concurrency: Concurrency = None,
    data: options.Data = None,
    json: Ready = False,
) -> None:
    """Run everything: API, worker and maintenance.

    In one process; or, with --processes N, in one API process and N worker processes, so that no job can take the API
    down with it. SIGHUP then replaces the processes one after another, each when its replacement is ready.

    Ctrl-C or SIGTERM stops it: open requests are answered, running jobs finish or are released, which costs no attempt.
    """
    settings = settings_with(
        app_of(app), api_host=host, api_port=port, holdfast_data=data, worker_concurrency=concurrency
    )
    if processes is None:
        if api_processes is not None:
            message = "--api-processes goes with --processes, the number of worker processes."
            raise Stop(message)
        _serve(settings, app, _Part(api=True, worker=True), json=json)
        return
    shared = _options(app=app, data=data)
    _supervise(
        settings,
        [
            *[("api", ("api", *shared))] * (api_processes or 1),
            *[("worker", ("worker", *shared, *_options(concurrency=concurrency)))] * processes,
        ],
        json=json,
    )


def api(
    app: options.App = None,
    host: Host = None,
    port: Port = None,
    processes: ApiProcesses = None,
    data: options.Data = None,
    json: Ready = False,
    lifeline: Lifeline = None,
    listener: Listener = None,
) -> None:
    """Run only the API.

    It accepts and records jobs. Workers in other processes, with the same data folder or in the same cluster, run them.
    With --processes, SIGHUP replaces the processes one after another; no connection is refused meanwhile.
    """
    _stay_with_parent(lifeline)
    settings = settings_with(app_of(app), api_host=host, api_port=port, holdfast_data=data)
    if processes is None:
        _serve(settings, app, _Part(api=True, worker=False, lifeline=lifeline, listener=listener), json=json)
        return
    _supervise(settings, [("api", ("api", *_options(app=app, data=data)))] * processes, json=json)


def worker(
    app: options.App = None,
    concurrency: Concurrency = None,
    processes: WorkerProcesses = None,
    data: options.Data = None,
    json: Ready = False,
    lifeline: Lifeline = None,
) -> None:
    """Run a worker with maintenance, without the API.

    Any number of workers may share a data folder or a cluster. With --processes, SIGHUP replaces the processes one
    after another: a rolling restart that costs no attempt.
    """
    _stay_with_parent(lifeline)
    settings = settings_with(app_of(app), worker_concurrency=concurrency, holdfast_data=data)
    if processes is None:
        _serve(settings, app, _Part(api=False, worker=True, lifeline=lifeline), json=json)
        return
    shared = _options(app=app, data=data, concurrency=concurrency)
    _supervise(settings, [("worker", ("worker", *shared))] * processes, json=json)


def _stay_with_parent(lifeline: int | None) -> None:
    """For a process that a parent started: before anything that takes time, such as the import of an app."""
    if lifeline is not None:
        end_with_parent(keep_private(lifeline))


def _options(**given: str | Path | int | None) -> tuple[str, ...]:
    return tuple(text for name, value in given.items() if value is not None for text in (f"--{name}", str(value)))


# --- one process ------------------------------------------------------------------------------------------------------


def _serve(settings: Settings, app: str | None, part: _Part, *, json: bool) -> None:
    _check(settings)
    workloads = app_of(app)

    def ready(address: str | None) -> None:
        if part.lifeline is not None:
            tell_ready(part.lifeline)
            return
        with contextlib.suppress(BrokenPipeError):  # the program that reads this line may end before the server
            _announce(settings, address, json=json)

    listener = None if part.listener is None else inherited_listener(part.listener)
    try:
        with _runner() as runner:
            runner.run(
                run(
                    settings,
                    workloads,
                    api=part.api,
                    worker=part.worker,
                    ready=ready,
                    listener=listener,
                    lifeline=part.lifeline,
                )
            )
    except StoreUnavailable as error:
        if not settings.cluster:
            raise
        # This is not a usage error: a server does not answer, and a later start may succeed.
        advice = f"Is MongoDB running at {settings.shown('mongo_uri')}? `holdfast doctor` gives details."
        raise Stop(error.message, advice, code=REFUSED) from error


@contextlib.contextmanager
def _runner() -> Iterator[asyncio.Runner]:
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        yield runner
    finally:
        # A driver that is stopped while it connects may leave a socket in the loop, and then the loop does not close.
        # All our own work is done by then, and the process ends.
        with contextlib.suppress(OSError):
            runner.close()


def _check(settings: Settings) -> None:
    problems = settings.secret_problems()
    if problems and not settings.holdfast_demo:
        message = "Holdfast does not start with unsafe secrets."
        raise Stop(message, *problems)
    require_libraries(settings)


def _loop_factory() -> Callable[[], Any] | None:
    """uvloop, if it is installed (not on Windows)."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


# --- several processes ------------------------------------------------------------------------------------------------


def _supervise(settings: Settings, parts: Sequence[tuple[str, tuple[str, ...]]], *, json: bool) -> None:
    """Run one process for each part; this one watches them."""
    _check(settings)
    serves = any(name == "api" for name, _ in parts)
    listener = listen(settings.api_host, settings.api_port) if serves else None
    duties = [Duty(name, arguments, listener if name == "api" else None) for name, arguments in parts]

    def ready(members: Sequence[Member]) -> None:
        address = None if listener is None else address_of(listener)
        with contextlib.suppress(BrokenPipeError):  # the program that reads this line may end first
            _announce(settings, address, members, json=json)

    exporter = LogExporter(settings.log_level, settings.log_format)
    attach(exporter)
    try:
        code = asyncio.run(_watched(duties, ready, settings))
    finally:
        detach(exporter)
        if listener is not None:
            listener.close()
    if code:
        raise typer.Exit(code)


async def _watched(duties: Sequence[Duty], ready: Callable[[Sequence[Member]], None], settings: Settings) -> int:
    # Requests, jobs and settling may each take the drain time. The rest of the time is for closing connections.
    drain = timedelta(milliseconds=settings.worker_drain_timeout_ms)
    supervisor = Supervisor(duties, ready=ready, stop_within=3 * drain + timedelta(seconds=30))
    return await supervisor.run()


# --- the ready message ------------------------------------------------------------------------------------------------


def _announce(settings: Settings, address: str | None, members: Sequence[Member] = (), *, json: bool) -> None:
    data = None if settings.cluster else str(settings.holdfast_data.absolute())
    if json:
        document: dict[str, object] = {"ready": True, "address": address, "data": data}
        if settings.cluster:
            document |= {"redis": settings.shown("redis_url"), "mongo": settings.shown("mongo_uri")}
            document["database"] = settings.mongo_db_name
        if members:
            document["processes"] = [{"process": member.duty.name, "pid": member.pid} for member in members]
        print_json(document, one_line=True)
        return
    workers = sum(member.duty.name == "worker" for member in members)
    what = f"{workers} workers are ready" if workers > 1 else "The worker is ready"
    if address is not None:
        what = f"Ready on {address} (API documentation: {address}/docs)"
    if members:
        what += f" in {len(members)} processes"
    ledger = f"{settings.mongo_db_name} at {settings.shown('mongo_uri')}"
    place = f"ledger in {ledger}, queue at {settings.shown('redis_url')}" if settings.cluster else f"data in {data}"
    again = "SIGHUP replaces the processes one by one. " if members else ""
    print_line(f"{what}; {place}. {again}Ctrl-C or SIGTERM stops it and loses nothing.")
