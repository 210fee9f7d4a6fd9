"""Opening what a command works on: the settings, the user's app, the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import App
from holdfast.contracts.errors import ConfigurationError, HoldfastError
from holdfast.contracts.redaction import scrub
from holdfast.wiring import DATABASE_FILE, System, load_app, open_system

from .failures import Stop
from .settings import settings_with


def app_of(reference: str | None) -> App | None:
    """The user's app. Whatever its module raises while it is imported is the user's to mend, not a bug of ours."""
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

    A folder without a ledger is refused: to list nothing from a mistyped folder would look like good news.
    """
    settings = settings_with(holdfast_data=data)
    folder = settings.holdfast_data
    if not (folder / DATABASE_FILE).is_file():
        message = (
            f"There is no ledger in {folder.absolute()}: nothing has run there yet. "
            "Start `holdfast up`, or name the right folder with --data or HOLDFAST_DATA."
        )
        raise Stop(message)
    async with open_system(settings, app_of(app)) as system:
        yield system
