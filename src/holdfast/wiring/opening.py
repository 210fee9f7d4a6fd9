"""Opening a system: the store and the queue that the settings name, and everything that uses them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import stat
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.brokers.sqlite import SqliteBroker
from holdfast.config import Settings
from holdfast.contracts.app import App
from holdfast.contracts.errors import ConfigurationError, StoreUnavailable
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.tenants import JOB_SCOPES, TenantLimits
from holdfast.contracts.workload import Workload
from holdfast.engine.cancellation import Cancellation
from holdfast.engine.intake import MAX_PENDING, Intake
from holdfast.engine.review import Review
from holdfast.engine.schedules import Schedules
from holdfast.engine.sender_limits import SenderLimits
from holdfast.engine.tenants import Tenants
from holdfast.engine.waiting import Waiting
from holdfast.feature import Feature, Opened, Services
from holdfast.installed import features_of
from holdfast.sqlite import Database
from holdfast.sqlite.database import files_of
from holdfast.stores.sqlite import SqliteStore
from holdfast.telemetry import emit, events

from .features import FRAME_COLLECTIONS, build, workloads_of
from .system import Cluster, System, connect, plain_lists

DATABASE_FILE: Final = "holdfast.db"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_ASK_EVERY: Final = timedelta(seconds=1)
_ONE_ATTEMPT: Final = timedelta(seconds=30)
"""The store has its own time limits for each call; this limit is for all calls of the opening, indexes included."""


class _Opened(NamedTuple):
    store: Store
    broker: Broker
    cluster: Cluster | None = None


@contextlib.asynccontextmanager
async def open_system(  # noqa: PLR0913 - what is opened, and what a test replaces
    settings: Settings,
    app: App | None = None,
    ambient: Ambient | None = None,
    *,
    patience: timedelta = timedelta(0),
    database: Database | None = None,
    features: Sequence[Feature[Any]] | None = None,
) -> AsyncIterator[System]:
    """Open the store and the queue, run the body, close them again.

    In a cluster, this waits up to ``patience`` for MongoDB; Redis may be away. ``database`` is used instead of the file
    of the settings, and closed. ``features`` are built instead of the installed ones and the app's.
    """
    if not settings.cluster and database is None:
        prepare_data_folder(settings.holdfast_data)
    ambient = ambient or system_ambient()
    services = Services(settings, ambient, partial(plain_lists, settings))
    built = build(features_of(app) if features is None else features, settings, services)
    everything = workloads_of(built, app)
    opening = _cluster(settings, everything, patience) if settings.cluster else _file(settings, everything, database)
    async with opening as (store, broker, cluster), contextlib.AsyncExitStack() as resources:
        workloads = {workload.name: workload for workload in everything}
        scopes = [str(scope) for each in built.values() for scope in each.feature.scopes]
        limits = SenderLimits(store, ambient.clock, sender_limits_of(settings))
        intake = Intake(store, broker, limits=limits)
        own = tuple(each.name for each in app.workloads) if app is not None else ()
        cancellation = Cancellation(store, broker)
        open_to_tenants = [name for name in own if workloads[name].schedule is None]
        tenants = Tenants(store, ambient.clock, [*scopes, *JOB_SCOPES], workloads=open_to_tenants)
        services.opened(Opened(store, broker, intake, cancellation, tenants, limits))
        for each in built.values():
            for resource in each.parts.resources if each.parts is not None else ():
                await resource.open()
                resources.push_async_callback(resource.close)
        yield System(
            settings=settings,
            workloads=workloads,
            features=built,
            services=services,
            store=store,
            broker=broker,
            ambient=ambient,
            intake=intake,
            review=Review(store, broker, workloads),
            cancellation=cancellation,
            tenants=tenants,
            waiting=Waiting(store),
            own_workloads=own,
            schedules=Schedules(store, intake, ambient.clock, everything),
            cluster=cluster,
        )
        await intake.drain()


def sender_limits_of(settings: Settings) -> TenantLimits:
    """The limits of a sender that has none of its own. One sender gets a quarter of the intake's places at most."""
    return TenantLimits(
        requests_per_second=settings.tenant_requests_per_second,
        pending=max(1, MAX_PENDING // 4),
        waiting_jobs=settings.tenant_waiting_jobs,
        streams=settings.tenant_streams,
    )


@contextlib.asynccontextmanager
async def _file(
    settings: Settings, workloads: Sequence[Workload[Any]], database: Database | None
) -> AsyncIterator[_Opened]:
    """Everything in one SQLite file."""
    database = database or Database(settings.holdfast_data / DATABASE_FILE)
    try:
        broker = SqliteBroker(database)
        grace = timedelta(milliseconds=settings.publish_grace_ms)
        store = SqliteStore(database, workloads, grace=grace, outbox=broker, collections=FRAME_COLLECTIONS)
        await store.open()
        await broker.open()
        yield _Opened(store, broker)
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def _cluster(
    settings: Settings,
    workloads: Sequence[Workload[Any]],
    patience: timedelta,
) -> AsyncIterator[_Opened]:
    """The ledger in MongoDB, the queue in Redis."""
    async with connect(settings, workloads) as cluster:
        await _reach(cluster, patience)
        if places := await cluster.store.foreign_places():
            emit(events.RECORDS_FOREIGN, collections=places, advice="`holdfast migrate` brings them over.")
        await cluster.broker.open()
        yield _Opened(cluster.store, cluster.broker, cluster)


@contextlib.asynccontextmanager
async def open_cluster(settings: Settings, app: App | None = None) -> AsyncIterator[Cluster]:
    """The two adapters alone, without a connection: for commands that check servers."""
    services = Services(settings, system_ambient(), partial(plain_lists, settings))
    everything = workloads_of(build(features_of(app), settings, services), app)
    async with connect(settings, everything) as cluster:
        yield cluster


async def _reach(cluster: Cluster, patience: timedelta) -> None:
    """Return once MongoDB can commit; raise :class:`StoreUnavailable` if this takes too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience.total_seconds()
    while True:
        try:
            async with asyncio.timeout(_ONE_ATTEMPT.total_seconds()):
                await cluster.store.open()
                await cluster.store.ping()
        except (StoreUnavailable, TimeoutError) as error:
            reason = error.message if isinstance(error, StoreUnavailable) else "MongoDB does not answer."
            left = end - loop.time()
            if left <= 0:
                raise StoreUnavailable(reason) from error
            emit(events.STORE_UNAVAILABLE, where="start", reason=reason, seconds_left=round(left))
        else:
            return
        await asyncio.sleep(min(left, _ASK_EVERY.total_seconds()))


# --- the data folder: made at the first start, and a refusal names the setting ------------------------------------


def prepare_data_folder(folder: Path) -> None:
    """Make the folder if it is not there. Raises :class:`ConfigurationError` if this user cannot work in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise _refused(folder, "it is not a folder") from error
    except OSError as error:
        raise _refused(folder, error.strerror or str(error)) from error
    check_data_folder(folder)
    _close_to_others(folder)


def open_to_others(folder: Path) -> list[Path]:
    """The data folder, if others may read it, and files of the database that others may read."""
    return [each for each in (folder, *files_of(folder / DATABASE_FILE)) if _rights_of_others(each)]


def _close_to_others(folder: Path) -> None:
    """Take the folder and the database from other users. Holdfast keeps what tenants send, in clear, in both.

    A folder of another owner, such as the mount of a container, cannot be changed. There the group may have rights:
    the owner decided so. If all users have rights, the folder is refused.
    """
    for each in open_to_others(folder):
        owned = each.stat().st_uid == os.geteuid()
        if owned and not each.stat().st_mode & stat.S_ISVTX:
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~_OTHERS)
        elif owned or each.stat().st_mode & stat.S_IRWXO:
            raise _refused(folder, f"other users may read {each.name or each}, and this user cannot change that")


def _rights_of_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False


def check_data_folder(folder: Path) -> None:
    """Raise :class:`ConfigurationError` if the folder is there and this user cannot work in it."""
    database = folder / DATABASE_FILE
    if os.access(folder, os.F_OK) and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _refused(folder, "this user may not read and write there")
    if os.access(database, os.F_OK) and not os.access(database, os.R_OK | os.W_OK):
        raise _refused(folder, f"this user may not read and write {DATABASE_FILE}")


def _refused(folder: Path, why: str) -> ConfigurationError:
    """The error for a data folder that cannot be used."""
    return ConfigurationError(
        f"Cannot use the data folder {folder.absolute()}: {why}. "
        "Set HOLDFAST_DATA or --data to a folder that this user can write to."
    )


# --- the clock and the randomness of a real process ---------------------------------------------------------------


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()


class RandomIds:
    """Random identifiers."""

    def new(self, prefix: str) -> str:
        """``prefix_`` and 24 hexadecimal digits."""
        return f"{prefix}_{secrets.token_hex(12)}"


def system_ambient() -> Ambient:
    """The system clock, random identifiers and random numbers."""
    return Ambient(SystemClock(), RandomIds(), random.SystemRandom())
