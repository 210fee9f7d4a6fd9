"""``migrate``: create or update the tables and collections of the store."""

from __future__ import annotations

import asyncio

from holdfast import App
from holdfast.config import Settings
from holdfast.wiring import DATABASE_FILE, open_cluster, open_system

from . import options
from .output import print_json, print_line, say
from .settings import app_of, settings_with


def migrate(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Create the ledger's tables or collections.

    In a cluster, run it before a new version starts, as a user that may create indexes. It also converts the records
    of another system in the same MongoDB collections; that system may keep running. The embedded ledger is updated by
    every start; this command does the same without a start. You can run it again safely.
    """
    own = app_of(app)
    settings = settings_with(own, holdfast_data=data)
    done = asyncio.run(_done(settings, own))
    place = settings.mongo_db_name if settings.cluster else str(settings.holdfast_data.absolute() / DATABASE_FILE)
    if json:
        print_json({"place": place, "done": done})
        return
    for sentence in done:
        print_line(sentence)
    say(f"{place} is up to date." if done else f"{place} is up to date; there was nothing to do.")


async def _done(settings: Settings, app: App | None) -> list[str]:
    """The changes that were made, one sentence each."""
    if settings.cluster:
        async with open_cluster(settings, app) as cluster:
            return await cluster.store.migrate()
    file = settings.holdfast_data / DATABASE_FILE
    there = file.is_file()
    async with open_system(settings, app):
        return [] if there else [f"Created {file.absolute()}."]
