"""The one place where parts become a system. Everything above it asks here; nothing below it knows the whole."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import uvicorn

from holdfast.api.app import create_app
from holdfast.api.services import ApiOptions, ApiServices
from holdfast.api.verify import SourceSecret
from holdfast.brokers.sqlite import SqliteBroker
from holdfast.config import Settings
from holdfast.contracts import crash_points
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import App, Workload
from holdfast.engine.execution import ExecutionOptions
from holdfast.engine.intake import Intake
from holdfast.engine.review import Review
from holdfast.engine.upkeep import Upkeep
from holdfast.sqlite import Database
from holdfast.stores.sqlite import SqliteStore
from holdfast.telemetry import attach, detach
from holdfast.telemetry.logs import LogExporter
from holdfast.worker import Worker
from holdfast.workloads.courier import Courier, CourierDoor, CourierOptions

DATABASE_FILE: Final = "holdfast.db"
CRASH_POINT_VARIABLE: Final = "HOLDFAST_CRASH_POINT"

_SWITCH_INTERVAL: Final = 0.00005
"""Seconds. SQLite's thread gives the interpreter lock away with every statement and waits about this long to get it
back from a busy event loop. Against 0.5 ms, five interleaved runs each on a noisy machine gave a mean intake of 3,586
against 3,197 requests/s; 10 us gave no more. The worker showed no difference."""


# --- the ambient ----------------------------------------------------------------------------------------------


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()


class RandomIds:
    """Identifiers from the system's randomness."""

    def new(self, prefix: str) -> str:
        """``prefix_`` and 24 hexadecimal digits."""
        return f"{prefix}_{secrets.token_hex(12)}"


def system_ambient() -> Ambient:
    """Real time, real chance."""
    return Ambient(SystemClock(), RandomIds(), random.SystemRandom())


# --- the parts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class System:
    """The parts of one process, put together and open."""

    settings: Settings
    workloads: Mapping[str, Workload[Any]]
    courier: Courier | None
    store: Store
    broker: Broker
    ambient: Ambient
    intake: Intake
    review: Review

    def api(self) -> Any:  # noqa: ANN401 - an ASGI app
        """The HTTP side."""
        settings = self.settings
        services = ApiServices(
            store=self.store,
            broker=self.broker,
            intake=self.intake,
            review=self.review,
            clock=self.ambient.clock,
            ids=self.ambient.ids,
            workloads=self.workloads,
            courier=None if self.courier is None else CourierDoor(self.courier),
        )
        options = ApiOptions(
            secrets={
                source: [SourceSecret(each.secret.get_secret_value(), each.not_before, each.not_after) for each in held]
                for source, held in settings.courier_secrets.items()
            },
            tolerance=timedelta(seconds=settings.signature_tolerance_seconds),
            operator_token=settings.operator_token.get_secret_value() if settings.operator_token else None,
            max_body_bytes=settings.max_body_bytes,
        )
        return create_app(services, options)

    def upkeep(self) -> Upkeep:
        """What heals."""
        interval = timedelta(milliseconds=self.settings.upkeep_interval_ms)
        # What a sweeper that died had in hand is swept again when a dead worker's jobs would be claimed again.
        lease = timedelta(seconds=self.settings.worker_lease_seconds)
        workloads = list(self.workloads.values())
        return Upkeep(self.store, self.broker, workloads, self.ambient, interval=interval, again_after=lease)

    def worker(self) -> Worker:
        """What works."""
        options = ExecutionOptions(
            worker=self.ambient.ids.new(f"{socket.gethostname()}.{os.getpid()}"),
            concurrency=self.settings.worker_concurrency,
            lease=timedelta(seconds=self.settings.worker_lease_seconds),
        )
        drain = timedelta(milliseconds=self.settings.worker_drain_timeout_ms)
        workloads = list(self.workloads.values())
        return Worker(workloads, self.store, self.broker, self.ambient, self.upkeep(), options, drain=drain)


def courier_of(settings: Settings) -> Courier:
    """The courier workload as configured."""
    secret = settings.courier_downstream_secret
    return Courier(
        CourierOptions(
            retry=ExponentialBackoff(
                max_attempts=settings.retry_max_attempts,
                base=timedelta(milliseconds=settings.retry_backoff_base_ms),
                multiplier=settings.retry_backoff_multiplier,
                jitter_percent=settings.retry_jitter_percent,
            ),
            timeout=timedelta(milliseconds=settings.handler_timeout_ms),
            retention=timedelta(days=settings.processed_events_ttl_days),
            letter_retention=timedelta(days=settings.dlq_ttl_days),
            downstream_url=settings.courier_downstream_url,
            downstream_secret=None if secret is None else secret.get_secret_value(),
            downstream_timeout=timedelta(milliseconds=settings.courier_downstream_timeout_ms),
            concurrency=settings.worker_concurrency,
        ),
    )


def load_app(reference: str) -> App:
    """The :class:`App` that ``module:attribute`` names, looked for in the current folder too."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        message = f"--app takes module:attribute, such as mymodule:app, not {reference!r}."
        raise ConfigurationError(message)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"--app {reference}: there is no module {error.name!r} here or on the Python path."
        raise ConfigurationError(message) from error
    except Exception as error:
        message = f"--app {reference}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        raise ConfigurationError(message) from error
    found = getattr(module, attribute, None)
    if found is None:
        message = f"--app {reference}: the module {module_name!r} has no {attribute!r}."
        raise ConfigurationError(message)
    if not isinstance(found, App):
        message = f"--app {reference}: {attribute!r} is a {type(found).__name__}, not a holdfast.App."
        raise ConfigurationError(message)
    return found


@contextlib.asynccontextmanager
async def open_system(
    settings: Settings,
    app: App | None = None,
    ambient: Ambient | None = None,
) -> AsyncIterator[System]:
    """Open the store and the queue, run the body, close them again.

    The courier workload is part of every system; its HTTP door opens to sources that have a secret.
    """
    ambient = ambient or system_ambient()
    courier = courier_of(settings)
    # Checked as one app: names and queues of the user's workloads must not meet ours.
    everything = App([courier, *(app.workloads if app else ())]).workloads
    settings.holdfast_data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = Database(settings.holdfast_data / DATABASE_FILE)
    try:
        broker = SqliteBroker(database)
        grace = timedelta(milliseconds=settings.publish_grace_ms)
        store = SqliteStore(database, everything, grace=grace, outbox=broker)
        await store.open()
        await broker.open()
        workloads = {workload.name: workload for workload in everything}
        intake = Intake(store, broker, max_pending=settings.intake_max_pending)
        review = Review(store, broker, workloads)
        yield System(settings, workloads, courier, store, broker, ambient, intake, review)
        await intake.drain()
    finally:
        await database.close()


# --- running --------------------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: this module stops all parts in order."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and tell."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; says in words why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        message = f"Cannot listen on {host}:{port}: {error.strerror or error}. Set API_HOST and API_PORT, or --port."
        raise ConfigurationError(message) from error


async def run(
    settings: Settings,
    app: App | None = None,
    *,
    api: bool,
    worker: bool,
    ready: Callable[[str | None], None] | None = None,
) -> None:
    """Run the API, the worker, or both, until SIGTERM or SIGINT; then drain (I17).

    ``ready`` is called once everything is up, with the API's address.
    """
    _arm_crash_point(os.environ)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    exporter = LogExporter(settings.log_level, settings.log_format)
    attach(exporter)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        listener = listen(settings.api_host, settings.api_port) if api else None
        async with open_system(settings, app) as system, asyncio.TaskGroup() as group:
            worker_stop = asyncio.Event()
            if worker:
                group.create_task(_worker(system, stop, worker_stop))
            if listener is not None:
                await _serve(system, listener, stop, ready)
            else:
                if ready is not None:
                    ready(None)
                await stop.wait()
            worker_stop.set()
    finally:
        detach(exporter)


async def _worker(system: System, stop: asyncio.Event, worker_stop: asyncio.Event) -> None:
    """Work until the API has stopped. A worker that fails takes the process down: its supervisor starts it anew."""
    try:
        await system.worker().run(worker_stop)
    finally:
        stop.set()


async def _serve(
    system: System,
    listener: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[str | None], None] | None,
) -> None:
    settings = system.settings
    config = uvicorn.Config(
        system.api(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        http="httptools",
        timeout_graceful_shutdown=max(1, settings.worker_drain_timeout_ms // 1000),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    coming_up = asyncio.create_task(server.up.wait())
    await asyncio.wait({serving, coming_up}, return_when=asyncio.FIRST_COMPLETED)
    coming_up.cancel()
    if ready is not None and not serving.done():
        host, port = listener.getsockname()[:2]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
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
    if name not in crash_points.CRASH_POINTS:
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
