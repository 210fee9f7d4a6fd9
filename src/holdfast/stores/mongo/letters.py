"""Dead letters: finding them, and the steps of their review (I9)."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from pymongo import ASCENDING

from holdfast.contracts.dead_letters import DeadLetter, ReviewStatus
from holdfast.contracts.lifecycle import REVIEW_STEPS
from holdfast.contracts.queries import LetterQuery, Page, Slice

from .entries import WITHOUT_SNAPSHOT, letter_of, new_mark
from .foreign import ELSEWHERE, foreign_ids, is_foreign_letter
from .link import LONG, Collection, Document, Link
from .positions import after, compared, cursor_of, order_of
from .sweeping import known_queues
from .workload_collections import AllCollections, WorkloadCollections

_REPLAYED_OR_CLOSED: Final = (ReviewStatus.REPLAYED.value, ReviewStatus.CLOSED.value)
_SOME_QUEUE: Final = ""
"""In ``publishedTo``: the letter is replayed or closed, and it is not known whether a queue has it."""
_OLDEST_FIRST: Final = (("createdAt", ASCENDING), ("_id", ASCENDING))


async def read(link: Link, collections: AllCollections, letter_id: str) -> DeadLetter | None:
    """One dead letter. Its id does not show the workload, so all workloads are searched."""
    either = {"_id": {"$in": [letter_id, *foreign_ids([letter_id])]}}
    for each in collections:
        found = await _read(link, each, partial(_find_one, each.letters, either))
        if found:
            return letter_of(each.workload, found[0])
    return None


async def _read(
    link: Link, collections: WorkloadCollections, look: Callable[[], Awaitable[list[Document]]]
) -> list[Document]:
    """Read letters without their snapshots. Foreign letters need the snapshot, so it is read for them afterwards."""
    found = await link.run(look, seconds=LONG)
    foreign = [each["_id"] for each in found if is_foreign_letter(each)]
    if not foreign:
        return found
    wanted = {"_id": {"$in": foreign}}
    snapshots = await link.run(lambda: collections.letters.find(wanted, {"payloadSnapshot": 1}).to_list())
    by_id = {each["_id"]: each for each in snapshots}
    return [{**each, **by_id.get(each["_id"], {})} for each in found]


async def _find_one(letters: Collection, where: Document) -> list[Document]:
    return await letters.find(where, WITHOUT_SNAPSHOT).limit(1).to_list()


async def find(link: Link, collections: AllCollections, query: LetterQuery, page: Page) -> Slice[DeadLetter]:
    """Dead letters that match, oldest first, of one workload or of all together."""
    listings = []
    for each in collections.named(query.workload):
        conditions = _conditions(query, each)
        if page.cursor:
            conditions.append(after(page.cursor, "createdAt"))
        found = await _oldest(link, each, {"$and": conditions} if conditions else {}, page.limit + 1)
        listings.append([(order_of(document, "createdAt"), each.workload, document) for document in found])
    merged = list(heapq.merge(*listings, key=itemgetter(0)))
    items = [letter_of(workload, document) for _, workload, document in merged[: page.limit]]
    more = None
    if len(merged) > page.limit:
        *_, last = merged[page.limit - 1]
        more = cursor_of(last, "createdAt")
    return Slice(items, more)


async def _oldest(link: Link, collections: WorkloadCollections, where: Document, limit: int) -> list[Document]:
    return await _read(
        link,
        collections,
        lambda: collections.letters.find(where, WITHOUT_SNAPSHOT).sort(_OLDEST_FIRST).limit(limit).to_list(),
    )


async def count(link: Link, collections: AllCollections, query: LetterQuery) -> int:
    """How many dead letters match."""
    found = 0
    for each in collections.named(query.workload):
        conditions = _conditions(query, each)
        where = {"$and": conditions} if conditions else {}
        found += await link.run(partial(each.letters.count_documents, where), seconds=LONG)
    return found


def _conditions(query: LetterQuery, collections: WorkloadCollections) -> list[Document]:
    wanted: tuple[tuple[str, Any], ...] = (
        ("reviewStatus", query.review_status and query.review_status.value),
        ("terminalReasonCode", query.reason_code),
        ("idempotencyKey", query.key),
    )
    conditions: list[Document] = [{field: {"$eq": value}} for field, value in wanted if value is not None]
    if query.created_after is not None:
        conditions.append(compared("createdAt", "$gt", query.created_after))
    if query.created_before is not None:
        conditions.append(compared("createdAt", "$lt", query.created_before))
    for name, value in query.labels.items():
        # No path such as "labels.name": a label's name may contain dots and dollars.
        label: Document = {"$getField": {"field": {"$literal": name}, "input": "$labels"}}
        if name in collections.workload.label_columns:
            label = {"$ifNull": [label, f"${name}"]}
        conditions.append({"$expr": {"$eq": [label, {"$literal": value}]}})
    return conditions


# --- review ---------------------------------------------------------------------------------------------------


def starts_of(end: ReviewStatus) -> list[str]:
    """The states from which a letter may take this step."""
    return [start.value for start, ends in REVIEW_STEPS.items() if end in ends]


def step_fields(now: Any, end: ReviewStatus, actor: str, reason: str, mark: str) -> Document:  # noqa: ANN401 - an expression
    """The fields that a step changes, for an update with a pipeline."""
    decision = {"step": end.value, "actor": {"$literal": actor}, "reason": {"$literal": reason}, "at": now, "by": mark}
    fields: Document = {
        "reviewStatus": end.value,
        "updatedAt": now,
        "decisions": {"$concatArrays": ["$decisions", [decision]]},
    }
    if end.value in _REPLAYED_OR_CLOSED:
        # Even if the letter was not published: another process may be publishing it right now.
        fields["publishedTo"] = {"$ifNull": ["$publishedTo", _SOME_QUEUE]}
    return fields


async def step(  # noqa: PLR0913 - who, what, why
    link: Link,
    collections: AllCollections,
    letter_ids: Sequence[str],
    end: ReviewStatus,
    *,
    actor: str,
    reason: str,
) -> list[str]:
    """Move the letters that may take this step; return their ids."""
    if not letter_ids:
        return []
    mark = new_mark()
    ids = list(set(letter_ids))
    movable = {"_id": {"$in": ids}, "reviewStatus": {"$in": starts_of(end)}}
    moving: list[Document] = [{"$set": step_fields(link.clock.now(), end, actor, reason, mark)}]
    moved: set[str] = set()
    for each in collections:

        async def move_and_read(letters: Collection = each.letters) -> list[Document]:
            await letters.update_many(movable, moving)
            return await letters.find({"_id": {"$in": ids}, "decisions.by": mark}, {"_id": 1}).to_list()

        moved |= {found["_id"] for found in await link.run(move_and_read)}
    return [letter_id for letter_id in dict.fromkeys(letter_ids) if letter_id in moved]


# --- the dead-letter queue ------------------------------------------------------------------------------------


async def letters_to_publish(link: Link, collections: WorkloadCollections, limit: int) -> list[DeadLetter]:
    """Pending letters that are not in the queue yet."""
    known = (await known_queues(link, [collections])).get(collections.name)
    # Another system puts its own letters into the queue itself, also those that we have imported.
    missing: Any = None if known is None else {"$nin": [known, ELSEWHERE]}
    where = {"reviewStatus": ReviewStatus.PENDING.value, "publishedTo": missing, "generation": {"$exists": True}}
    return [letter_of(collections.workload, each) for each in await _oldest(link, collections, where, limit)]


async def mark_published(link: Link, collections: AllCollections, letter_ids: Sequence[str], queue: str) -> bool:
    """Mark the letters as published; False when the queue has been reset since.

    If the queue is reset at this very moment, that does no harm: the letters have the epoch of the lost queue.
    """
    known = await known_queues(link, list(collections))
    if any(epoch != queue for epoch in known.values()):
        return False
    for each in collections:
        await _mark(link, each, letter_ids, queue)
    return True


async def mark_unpublished(link: Link, collections: AllCollections, letter_ids: Sequence[str]) -> None:
    """Mark the letters as removed from this queue. A queue that is restored from a copy may have them again."""
    known = await known_queues(link, list(collections))
    for each in collections:
        await _mark(link, each, letter_ids, _unpublished_from(known.get(each.name)))


def _unpublished_from(queue: str | None) -> str:
    """In ``publishedTo``: this queue does not have the letter any more."""
    return f"-{queue or ''}"


async def _mark(link: Link, collections: WorkloadCollections, letter_ids: Sequence[str], mark: str) -> None:
    if letter_ids:
        marked = {"_id": {"$in": list(letter_ids)}}
        await link.run(lambda: collections.letters.update_many(marked, {"$set": {"publishedTo": mark}}))


async def letters_to_unpublish(link: Link, collections: WorkloadCollections, limit: int) -> list[str]:
    """Replayed and closed letters that the queue may still hold."""
    known = (await known_queues(link, [collections])).get(collections.name)
    where = {
        "reviewStatus": {"$in": list(_REPLAYED_OR_CLOSED)},
        "publishedTo": {"$ne": _unpublished_from(known)},
        "generation": {"$exists": True},
    }
    found = await link.run(
        lambda: collections.letters.find(where, {"_id": 1}).sort(_OLDEST_FIRST).limit(limit).to_list(),
    )
    return [each["_id"] for each in found]
