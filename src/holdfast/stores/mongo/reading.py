"""Reading and counting entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pymongo import DESCENDING

from holdfast.contracts.errors import InvalidQuery
from holdfast.contracts.ledger import LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, Page, Slice

from .entries import entry_of
from .link import LONG, Document, Link
from .positions import before, cursor_of
from .schema import label_field
from .workload_collections import WorkloadCollections

_NEWEST_FIRST: Final = (("firstSeenAt", DESCENDING), ("_id", DESCENDING))
_STATUSES: Final = [status.value for status in Status]


async def entry(link: Link, collections: WorkloadCollections, key: str) -> LedgerEntry | None:
    """The entry of this idempotency key."""
    found = await link.run(lambda: collections.entries.find_one({"idempotencyKey": {"$eq": key}}))
    return None if found is None else entry_of(collections.workload, found)


async def find(link: Link, collections: WorkloadCollections, query: EntryQuery, page: Page) -> Slice[LedgerEntry]:
    """Entries that match, newest first."""
    where: Document = {}
    if query.status is not None:
        where["status"] = query.status.value
    for label, value in query.labels.items():
        if label not in collections.workload.indexed_labels:
            message = f"Entries of {query.workload} cannot be found by the label {label!r}: no index has it."
            raise InvalidQuery(message)
        where[label_field(collections.workload, label)] = {"$eq": value}
    if page.cursor:
        where |= before(page.cursor, "firstSeenAt")
    rows = await link.run(
        lambda: collections.entries.find(where).sort(_NEWEST_FIRST).limit(page.limit + 1).to_list(), seconds=LONG
    )
    more = None
    if len(rows) > page.limit:
        more = cursor_of(rows[page.limit - 1], "firstSeenAt")
    return Slice([entry_of(collections.workload, each) for each in rows[: page.limit]], more)


async def counts(link: Link, collections: WorkloadCollections) -> Mapping[str, int]:
    """How many entries have each status. An index alone answers."""
    pipeline: list[Document] = [
        {"$match": {"status": {"$in": _STATUSES}}},
        {"$group": {"_id": "$status", "entries": {"$sum": 1}}},
    ]

    async def look() -> list[Document]:
        return await (await collections.entries.aggregate(pipeline)).to_list()

    return {each["_id"]: each["entries"] for each in await link.run(look, seconds=LONG)}
