"""``init``, ``config show`` and ``migrate``: set up a file, a ledger, and see what is set up."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from holdfast import App
from holdfast.config import CONFIG_FILE, Settings, fresh_config_text
from holdfast.installed import installed_features, settings_model

from . import options
from .failures import Stop
from .opening import app_of, settings_with
from .output import print_json, print_line, say, show_list

config = typer.Typer(help="See the settings in force.", no_args_is_help=True, add_completion=False)


@config.callback()
def _config() -> None:
    """See the settings in force."""


@config.command("show")
def show(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Every setting, its value, and where the value comes from. Secrets are masked."""
    options_of = {"HOLDFAST_APP": ("--app", app), "HOLDFAST_DATA": ("--data", data)}
    given = {name: option for name, (option, value) in options_of.items() if value is not None}
    settings = settings_with(app_of(app), holdfast_app=app, holdfast_data=data).describe()
    rows = [(row.name, row.shown, given.get(row.name, row.origin), row.help) for row in settings]
    show_list(
        rows,
        lambda row: dict(zip(("setting", "value", "from", "what it is for"), row, strict=True)),
        lambda row: dict(zip(("name", "value", "origin", "help"), row, strict=True)),
        json=json,
        whole=("setting", "from"),
    )


def init(
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file, and with it the secrets in it.")] = False,
) -> None:
    """Write a holdfast.toml with fresh secrets.

    The file is for your eyes only (mode 0600). It is written where Holdfast will look for it: to the path in
    HOLDFAST_CONFIG, otherwise to the current folder.
    """
    path = Path(os.environ.get("HOLDFAST_CONFIG") or CONFIG_FILE)
    (_replace if force else write_private)(path, starter_text())
    say(
        f"Wrote {path} with a new operator token and a secret for the source courier-x. Keep it out of version control."
    )
    say("Next: `holdfast doctor` checks everything, `holdfast up` starts, `holdfast send` sends a first event.")


def starter_text(app: str | None = None) -> str:
    """The text of a holdfast.toml with fresh secrets, which names this app of the user."""
    tables = [text for feature in installed_features() if (text := feature.starter())]
    return fresh_config_text(settings_model(), tables, app=app)


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read. Raises :class:`Stop` if there is one already."""
    # O_EXCL decides, not a look beforehand; the mode holds from the first moment.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        message = f"{path} is there already. --force overwrites it; couriers then need their new secrets."
        raise Stop(message) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _replace(path: Path, text: str) -> None:
    # Beside the old one, then in its place: nobody ever reads half a file. mkstemp makes it with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)


def migrate(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Create the ledger's tables or collections.

    In a cluster, run it before a new version starts, as a user that may create indexes. It also converts the records
    of another system in the same MongoDB collections; that system may keep running. The embedded ledger is updated by
    every start; this command does the same without a start. You can run it again safely.
    """
    from holdfast.wiring import DATABASE_FILE  # noqa: PLC0415 - the other commands here need no store

    own = app_of(app)
    settings = settings_with(own, holdfast_data=data)
    done = asyncio.run(_migrated(settings, own))
    place = settings.mongo_db_name if settings.cluster else str(settings.holdfast_data.absolute() / DATABASE_FILE)
    if json:
        print_json({"place": place, "done": done})
        return
    for sentence in done:
        print_line(sentence)
    say(f"{place} is up to date." if done else f"{place} is up to date; there was nothing to do.")


async def _migrated(settings: Settings, app: App | None) -> list[str]:
    """The changes that were made, one sentence each."""
    from holdfast.wiring import DATABASE_FILE, open_cluster, open_system  # noqa: PLC0415 - as above

    if settings.cluster:
        async with open_cluster(settings, app) as cluster:
            return await cluster.store.migrate()
    file = settings.holdfast_data / DATABASE_FILE
    there = file.is_file()
    async with open_system(settings, app):
        return [] if there else [f"Created {file.absolute()}."]
