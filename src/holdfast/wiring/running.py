"""Running a process: the API, the worker, or both, until a signal stops them; and stopping them in order."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Final

from holdfast.config import Settings
from holdfast.contracts import crash_points
from holdfast.contracts.app import App
from holdfast.contracts.errors import ConfigurationError
from holdfast.telemetry import attach, detach, emit, events
from holdfast.telemetry.logs import LogExporter

from .opening import open_system
from .system import System

CRASH_POINT_VARIABLE: Final = "HOLDFAST_CRASH_POINT"

STORE_PATIENCE: Final = timedelta(seconds=30)
"""How long a starting process waits for MongoDB: long enough for an election or a restart."""

_SWITCH_INTERVAL: Final = 0.00005
"""Seconds. SQLite's thread gives the interpreter lock away with every statement and waits about this long to get it
back from a busy event loop. Against 0.5 ms, five interleaved runs each on a noisy machine gave a mean intake of 3,586
against 3,197 requests/s; 10 us gave no more. The worker showed no difference. A cluster has no such thread."""

_COLLECTION: Final = (20_000, 50, 1000)
"""How many new objects, small collections and larger collections there are before the next collection."""

# Of mallopt(3), in glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 128 * 1024

Ready = Callable[[str | None], None]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises :class:`ConfigurationError` with the reason if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        message = f"Cannot listen on {host}:{port}: {error.strerror or error}. Set API_HOST and API_PORT, or --port."
        raise ConfigurationError(message) from error


def address_of(listener: socket.socket) -> str:
    """The address for clients."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def run(  # noqa: PLR0913 - which parts, and how they are steered
    settings: Settings,
    app: App | None = None,
    *,
    api: bool,
    worker: bool,
    ready: Ready | None = None,
    listener: socket.socket | None = None,
    lifeline: int | None = None,
) -> None:
    """Run the API, the worker, or both, until SIGTERM or SIGINT; then drain (I17). SIGHUP has no effect.

    ``ready`` is called once everything is up, with the API's address. ``listener`` is a socket that listens already,
    shared with other processes. ``lifeline`` is a descriptor that nobody writes to: when the process at its other end
    ends, for any reason, this process stops too.
    """
    _arm_crash_point(os.environ)
    give_back_large_blocks()
    if not settings.cluster:
        sys.setswitchinterval(_SWITCH_INTERVAL)
    exporter = LogExporter(settings.log_level, settings.log_format)
    attach(exporter)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores the signal, and that stays
        loop.add_signal_handler(signal.SIGHUP, _refuse_to_reload, lifeline is not None)
    if lifeline is not None:
        loop.add_reader(lifeline, _stop_with_parent, loop, lifeline, stop)
    try:
        if api and listener is None:
            listener = listen(settings.api_host, settings.api_port)
        async with _opened(settings, app, stop) as system:
            if system is not None:
                await _run(system, listener if api else None, stop, ready, worker=worker)
    finally:
        if lifeline is not None:
            loop.remove_reader(lifeline)
        if listener is not None:
            listener.close()
        detach(exporter)


def give_back_large_blocks() -> None:
    """Let each large block go back to the system when it is freed.

    That is glibc's own rule at first. But when a large block is freed, glibc takes larger and larger blocks from its
    heap, where one small block above them keeps them all: after 40 lists of 200 dead letters of 250 KB, 8 at a time, an
    API process kept 916 MB. With the rule fixed it keeps 151 MB.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)  # musl and macOS have none, and no such rule
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, _LARGE)
        adjust(_M_TRIM_THRESHOLD, _LARGE)


def collect_less_often() -> None:
    """Let Python look for garbage less often, and never at what was made until now, because that stays.

    A collection stops all requests of a process (I18). Almost nothing here is garbage in a circle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION)


def _refuse_to_reload(supervised: bool) -> None:  # noqa: FBT001 - a callback gets its arguments by position
    """Log why SIGHUP has no effect. A single process cannot replace itself, and must not end without draining."""
    to_parent = "Send SIGHUP to the parent process: it replaces its processes one by one."
    advice = to_parent if supervised else "Restart this process, or start it with --processes."
    emit(events.RELOAD_REFUSED, signal="SIGHUP", advice=advice)


def _stop_with_parent(loop: asyncio.AbstractEventLoop, lifeline: int, stop: asyncio.Event) -> None:
    loop.remove_reader(lifeline)  # a closed pipe stays readable, and would call this again and again
    stop.set()


@contextlib.asynccontextmanager
async def _opened(settings: Settings, app: App | None, stop: asyncio.Event) -> AsyncIterator[System | None]:
    """The system; None if the process was stopped while it waited for the store."""
    async with contextlib.AsyncExitStack() as stack:
        opening = asyncio.ensure_future(
            stack.enter_async_context(open_system(settings, app, patience=STORE_PATIENCE)),
        )
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            yield await opening if opening.done() else None
        finally:
            for task in (opening, stopping):
                task.cancel()
            await asyncio.gather(opening, stopping, return_exceptions=True)


async def _run(
    system: System,
    listener: socket.socket | None,
    stop: asyncio.Event,
    ready: Ready | None,
    *,
    worker: bool,
) -> None:
    async with asyncio.TaskGroup() as group:
        worker_stop = asyncio.Event()
        if worker:
            started = asyncio.Event()
            group.create_task(_worker(system, stop, worker_stop, started))
            await started.wait()
        else:
            # Jobs must expire, and lost jobs must be published again, even if no worker runs (I10).
            group.create_task(system.maintenance(alone=True).run(worker_stop))
        if listener is not None:
            await _serve(system, listener, stop, ready)
        else:
            collect_less_often()
            if ready is not None and not stop.is_set():
                ready(None)
            await stop.wait()
        worker_stop.set()


async def _worker(
    system: System,
    stop: asyncio.Event,
    worker_stop: asyncio.Event,
    started: asyncio.Event,
) -> None:
    """Work until the API has stopped. If the worker fails, the process ends, and its supervisor starts it again."""
    try:
        await system.worker().run(worker_stop, started)
    finally:
        stop.set()
        started.set()


async def _serve(
    system: System,
    listener: socket.socket,
    stop: asyncio.Event,
    ready: Ready | None,
) -> None:
    from .serving import server_of  # noqa: PLC0415 - a worker needs no web server

    api = system.api()
    await api.prepare()
    server = server_of(api, system.settings, system.ambient.ids)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    coming_up = asyncio.create_task(server.up.wait())
    await asyncio.wait({serving, coming_up}, return_when=asyncio.FIRST_COMPLETED)
    coming_up.cancel()
    collect_less_often()
    if ready is not None and not serving.done():
        ready(address_of(listener))
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving


def _arm_crash_point(environ: Mapping[str, str]) -> None:
    """For kill tests: ``HOLDFAST_CRASH_POINT=name:n`` ends the process, without warning, at the n-th pass."""
    value = environ.get(CRASH_POINT_VARIABLE)
    if not value:
        return
    name, _, count = value.partition(":")
    some = (*crash_points.POINTS_OF_NO_RETURN, *crash_points.POINTS_OF_LISTS, *crash_points.POINTS_OF_SCHEDULES)
    known = (*crash_points.CRASH_POINTS, *some)
    if name not in known:
        message = f"{CRASH_POINT_VARIABLE}: there is no crash point {name!r}."
        raise ConfigurationError(message)
    left = int(count or 1)

    def pass_by(passed: str) -> None:
        nonlocal left
        if passed == name:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    crash_points.arm(pass_by)
