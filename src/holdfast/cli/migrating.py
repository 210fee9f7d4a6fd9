"""``migrate``: make the store what this version and these workloads need."""

from __future__ import annotations

import asyncio

from holdfast import App
from holdfast.config import Settings
from holdfast.wiring import DATABASE_FILE, open_cluster, open_system

from . import options
from .opening import app_of
from .output import print_json, print_line, say
from .settings import settings_with


def migrate(app: options.App = None, data: options.Data = None, json: options.Json = False) -> None:
    """Create what the ledger needs: tables, or collections.

    In a cluster, run it before a new version starts, as a user that may create indexes. It also brings over what
    another system wrote into the same MongoDB collections; that system may go on running. The embedded ledger is
    brought up to date by every start; this does the same without one. To run it again is safe.
    """
    settings = settings_with(holdfast_data=data)
    done = asyncio.run(_done(settings, app_of(app)))
    place = settings.mongo_db_name if settings.cluster else str(settings.holdfast_data.absolute() / DATABASE_FILE)
    if json:
        print_json({"place": place, "done": done})
        return
    for sentence in done:
        print_line(sentence)
    say(f"{place} is up to date." if done else f"{place} is up to date; there was nothing to do.")


async def _done(settings: Settings, app: App | None) -> list[str]:
    """What was done, one sentence each."""
    if settings.cluster:
        async with open_cluster(settings, app) as cluster:
            return await cluster.store.migrate()
    file = settings.holdfast_data / DATABASE_FILE
    there = file.is_file()
    async with open_system(settings, app):
        return [] if there else [f"Created {file.absolute()}."]
