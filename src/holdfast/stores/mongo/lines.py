"""Lanes: where their ends are, and how far the work has come. An index alone answers, however long the lanes are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pymongo import DESCENDING

from holdfast.contracts.ledger import Lines, Status

from .link import Collection, Document, Link

_LAST_OF_EACH: Final[tuple[Document, ...]] = (
    {"$sort": {"openLane": 1, "priority": -1}},
    {"$group": {"_id": "$openLane", "end": {"$first": "$priority"}}},
)
_IN_WORK: Final = {"status": Status.PROCESSING.value, "openLane": {"$exists": True}}


async def lines(link: Link, entries: Collection, lanes: Sequence[str]) -> Lines:
    """The front of the workload and the ends of these lanes; see the port."""
    front, ends = await asyncio.gather(_front(link, entries), _ends(link, entries, lanes))
    return Lines(front, ends)


async def _front(link: Link, entries: Collection) -> int:
    foremost = [("priority", DESCENDING)]
    found = await link.run(lambda: entries.find_one(_IN_WORK, {"_id": 0, "priority": 1}, sort=foremost))
    return 0 if found is None else int(found["priority"])


async def _ends(link: Link, entries: Collection, lanes: Sequence[str]) -> dict[str, int]:
    if not lanes:
        return {}
    pipeline: list[Document] = [{"$match": {"openLane": {"$in": list(set(lanes))}}}, *_LAST_OF_EACH]

    async def look() -> list[Document]:
        return await (await entries.aggregate(pipeline)).to_list()

    return {each["_id"]: each["end"] for each in await link.run(look)}
