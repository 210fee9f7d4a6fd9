"""Facts about the server, for ``holdfast doctor``."""

from __future__ import annotations

from collections.abc import Collection

from .link import Link


async def facts(link: Link, collections: Collection[str]) -> dict[str, str]:
    """Version, replica set and its size, and how many of these collections exist. Writes nothing.

    Raises :class:`ConfigurationError` for a server that Holdfast cannot work with.
    """
    await link.open()
    admin = link.database.client.admin
    hello = await link.run(lambda: admin.command("hello"))
    build = await link.run(lambda: admin.command("buildInfo"))
    present = set(await link.run(link.database.list_collection_names))
    found = {"version": str(build["version"]), "collections": str(len(present.intersection(collections)))}
    if "setName" in hello:
        members = [each for kind in ("hosts", "passives", "arbiters") for each in hello.get(kind, ())]
        found |= {"replica_set": str(hello["setName"]), "members": str(len(members))}
    return found
