"""Opening the store for a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.config import Settings
from holdfast.feature import NotSetUp
from holdfast.wiring import DATABASE_FILE, System, check_data_folder, open_cluster, open_system

from .failures import Stop
from .settings import app_of, settings_with


@asynccontextmanager
async def existing_system(data: Path | None, app: str | None) -> AsyncIterator[System]:
    """The system over a ledger that is there, next to whatever servers are running on it.

    A folder or a database without a ledger is refused: to list nothing from a mistyped one would look like good news.
    """
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
    async with open_cluster(settings, app) as cluster:
        if (await cluster.store.facts())["collections"] == "0":
            message = (
                f"There is no ledger in the database {settings.mongo_db_name}: nothing has run there yet. "
                "Start `holdfast up`, or name the right database with MONGO_DB_NAME."
            )
            raise Stop(message)


@asynccontextmanager
async def open_feature(name: str, data: Path | None) -> AsyncIterator[Any]:
    """The own object (``Parts.service``) of a feature, over a ledger that is there.

    Where the feature is not set up, raises :class:`Stop` with the reason.
    """
    async with existing_system(data, None) as system:
        try:
            service = system.service(name)
        except NotSetUp as error:
            raise Stop(error.message) from None
        yield service
