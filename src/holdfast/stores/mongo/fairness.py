"""Fairness keys: the last place of each key, and the place in work. An index alone answers, however many jobs wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from pymongo import ASCENDING, DESCENDING

from holdfast.contracts.ledger import QueuePlaces, Status

from .link import Collection, Document, Link

_LAST_OF_EACH: Final[tuple[Document, ...]] = (
    {"$sort": {"openLane": 1, "priority": -1}},
    {"$group": {"_id": "$openLane", "end": {"$first": "$priority"}}},
)
_IN_WORK: Final = {"status": Status.PROCESSING.value, "openLane": {"$exists": True}}
_WAITING: Final = {"status": Status.RECEIVED.value, "openLane": {"$exists": True}}


async def queue_places(link: Link, entries: Collection, fairness_keys: Sequence[str]) -> QueuePlaces:
    """The front of the workload, and the last place of each fairness key; see the port."""
    front, ends = await asyncio.gather(_front(link, entries), _ends(link, entries, fairness_keys))
    return QueuePlaces(front, ends)


async def _front(link: Link, entries: Collection) -> int:
    for which, order in ((_IN_WORK, DESCENDING), (_WAITING, ASCENDING)):
        found = await link.run(partial(entries.find_one, which, {"_id": 0, "priority": 1}, sort=[("priority", order)]))
        if found is not None:
            return int(found["priority"])
    return 0


async def _ends(link: Link, entries: Collection, fairness_keys: Sequence[str]) -> dict[str, int]:
    if not fairness_keys:
        return {}
    pipeline: list[Document] = [{"$match": {"openLane": {"$in": list(set(fairness_keys))}}}, *_LAST_OF_EACH]

    async def look() -> list[Document]:
        return await (await entries.aggregate(pipeline)).to_list()

    return {each["_id"]: each["end"] for each in await link.run(look)}
