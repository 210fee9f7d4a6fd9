"""Opening the settings, the user's app and the store for a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.config import Settings
from holdfast.contracts.errors import ConfigurationError, HoldfastError
from holdfast.contracts.redaction import scrub
from holdfast.feature import NotSetUp
from holdfast.wiring import DATABASE_FILE, System, check_data_folder, load_app, open_cluster, open_system

from .failures import Stop
from .settings import settings_with


def app_of(reference: str | None) -> App | None:
    """The user's app. An exception while its module is imported is an error of the user's code, not our bug."""
    if reference is None:
        return None
    try:
        return load_app(reference)
    except HoldfastError:
        raise
    except Exception as error:
        message = f"--app {reference} cannot be imported: {type(error).__name__}: {scrub(str(error))}"
        raise ConfigurationError(message) from error


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
