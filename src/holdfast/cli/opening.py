"""What a command works on: the user's app, the settings, and the store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast import App, Page, RecordQuery, Slice
from holdfast.config import Settings, SettingsError, app_setting, load
from holdfast.feature import NotSetUp, Services
from holdfast.installed import settings_model

from .failures import Stop
from .output import say

if TYPE_CHECKING:  # a command that only sends does without a store
    from holdfast.wiring import System

OWN_WORKLOADS: Final = "HOLDFAST_APP, app in holdfast.toml, or --app names your own workloads."

Service = TypeVar("Service")


def app_of(reference: str | None) -> App | None:
    """The user's app: that of ``--app``, otherwise of HOLDFAST_APP, otherwise of ``app`` in the file.

    Its module is looked for in the current folder and in the folder of the file. An exception while it is imported is
    an error of the user's code, not our bug: raises :class:`ConfigurationError`.
    """
    setting = app_setting(os.environ)
    if reference is None and setting is None:
        return None
    from holdfast.wiring import load_app  # noqa: PLC0415 - a command that only sends does without a store

    if reference is not None or setting is None:
        return load_app(reference or "")
    folders = (setting.folder, Path()) if setting.in_file else (Path(), setting.folder)
    return load_app(setting.reference, folders, written=setting.written)


def settings_with(app: App | None = None, **given: str | int | Path | None) -> Settings:
    """The settings, with those of the installed features and of the app.

    An option of the command has priority over the environment; None: the option was not given.

    Raises :class:`Stop` with every problem of the settings.
    """
    overlay = {}
    for name, value in given.items():
        if value is None:
            continue
        if not str(value):
            message = f"--{name.rpartition('_')[2]} must not be empty."
            raise Stop(message)
        overlay[name.upper()] = str(value)
    try:
        settings = load({**os.environ, **overlay}, model=settings_model(app or app_of(None)))
    except SettingsError as error:
        raise Stop(*error.problems) from None
    for warning in settings.warnings:
        say(f"Warning: {warning}")
    return settings


@asynccontextmanager
async def existing_system(data: Path | None, app: str | None) -> AsyncIterator[System]:
    """The system over a ledger that is there, next to whatever servers are running on it.

    A folder or a database without a ledger is refused: to list nothing from a mistyped one would look like good news.
    """
    from holdfast.wiring import DATABASE_FILE, check_data_folder, open_system  # noqa: PLC0415 - see above

    workloads = app_of(app)
    settings = settings_with(workloads, holdfast_data=data)
    folder = settings.holdfast_data
    if settings.cluster:
        await _expect_ledger(settings, workloads)
    else:
        check_data_folder(folder)
        if not (folder / DATABASE_FILE).is_file():
            message = (
                f"There is no ledger in {folder.absolute()}: nothing has run there yet. "
                "Start `holdfast up`, or name the right folder with --data or HOLDFAST_DATA."
            )
            raise Stop(message)
    async with open_system(settings, workloads) as system:
        yield system


async def _expect_ledger(settings: Settings, app: App | None) -> None:
    from holdfast.wiring import open_cluster  # noqa: PLC0415 - see above

    async with open_cluster(settings, app) as cluster:
        if (await cluster.store.facts())["collections"] == "0":
            message = (
                f"There is no ledger in the database {settings.mongo_db_name}: nothing has run there yet. "
                "Start `holdfast up`, or name the right database with MONGO_DB_NAME."
            )
            raise Stop(message)


@asynccontextmanager
async def open_feature(name: str, kind: type[Service], data: Path | None) -> AsyncIterator[Service]:
    """The own object of a feature (``Parts.service``), which is of this kind, over a ledger that is there.

    Where the feature is not set up, raises :class:`Stop` with the reason.
    """
    async with existing_system(data, None) as system:
        try:
            service = system.service(name)
        except NotSetUp as error:
            raise Stop(error.message) from None
        if not isinstance(service, kind):
            message = f"The feature {name} has no {kind.__name__} for its commands."
            raise TypeError(message)
        yield service


async def find_records(
    services: Services,
    collection: str,
    page: Page,
    *,
    newest_by: str,
    owner: str,
    tenant: str | None,
    status: StrEnum | None,
) -> Slice[Any]:
    """Records, newest first: those of ``tenant`` (its id or name) and with ``status``, where these are given.

    ``owner`` is the field with the id of the tenant.
    """
    where = {} if tenant is None else {owner: (await services.tenants.named(tenant)).company_id}
    if status is not None:
        where["status"] = status.value
    return await services.store.find_records(RecordQuery(collection=collection, where=where, newest_by=newest_by), page)
