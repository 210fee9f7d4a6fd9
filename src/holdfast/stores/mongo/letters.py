"""Dead letters: finding them, the steps of their review, and their replay (I9).

In a replay, the letter's step and the job's next generation are one transaction. The decision in the letter holds the
mark of the call: when the reply to the commit was lost, the call finds by its mark which letters it moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any, Final

from pymongo import ASCENDING, UpdateOne

from holdfast.contracts.dead_letters import DeadLetter, ListedLetter, ReviewStatus
from holdfast.contracts.ledger import NewEntry, Status
from holdfast.contracts.queries import LetterQuery, Page, Slice
from holdfast.contracts.transitions import REVIEW_STEPS
from holdfast.stores.fields import MOST_BODY_BYTES, slice_of
from holdfast.stores.folding import writes_of

from .documents import (
    LISTED_FIELDS,
    WITHOUT_SNAPSHOT,
    after,
    compared,
    cursor_of,
    letter_of,
    listed_letter_of,
    new_document,
    new_mark,
    order_of,
)
from .foreign import ELSEWHERE, foreign_ids, is_foreign_letter
from .importing import import_letters
from .link import LONG, Collection, Document, Session
from .schema import StoreParts, WorkloadCollections
from .sweeping import known_queues

_REPLAYED_OR_CLOSED: Final = (ReviewStatus.REPLAYED.value, ReviewStatus.CLOSED.value)
_SOME_QUEUE: Final = ""
"""In ``publishedTo``: the letter is replayed or closed, and it is not known whether a queue has it."""
_FOREIGN_BATCH: Final = 10
_OLDEST_FIRST: Final = (("createdAt", ASCENDING), ("_id", ASCENDING))


class Letters(StoreParts):
    """The part of the store that has the dead letters."""

    async def letter(self, letter_id: str) -> DeadLetter | None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letter`.

        Its id does not show the workload, so all workloads are searched.
        """
        either = {"_id": {"$in": [letter_id, *foreign_ids([letter_id])]}}
        for each in self.collections:
            found = await self.link.run(partial(each.letters.find_one, either, WITHOUT_SNAPSHOT), seconds=LONG)
            if found is not None and is_foreign_letter(found):  # the body is made of the snapshot
                found = await self.link.run(partial(each.letters.find_one, either), seconds=LONG)
            if found is not None:
                return letter_of(each.workload, found)
        return None

    async def letters(self, query: LetterQuery, page: Page) -> Slice[ListedLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters`. Of one workload, or of all together."""
        listings = []
        for each in self.collections.named(query.workload):
            conditions = _conditions(query, each)
            if page.cursor:
                conditions.append(after(page.cursor, "createdAt"))
            found = await self._listed(each, {"$and": conditions} if conditions else {}, page.limit + 1)
            listings.append([(order_of(document, "createdAt"), letter, document) for letter, document in found])
        merged = list(heapq.merge(*listings, key=itemgetter(0)))
        return slice_of(merged, page, itemgetter(1), lambda row: cursor_of(row[2], "createdAt"))

    async def count_letters(self, query: LetterQuery) -> int:
        """See :meth:`holdfast.contracts.ports.DeadLetters.count_letters`."""
        found = 0
        for each in self.collections.named(query.workload):
            conditions = _conditions(query, each)
            where = {"$and": conditions} if conditions else {}
            found += await self.link.run(partial(each.letters.count_documents, where), seconds=LONG)
        return found

    async def _listed(
        self, collections: WorkloadCollections, where: Document, limit: int
    ) -> list[tuple[ListedLetter, Document]]:
        """The oldest letters, each with the fields that were read for the list."""
        letters, workload = collections.letters, collections.workload
        found = await self.link.run(
            lambda: letters.find(where, LISTED_FIELDS).sort(_OLDEST_FIRST).limit(limit).to_list(), seconds=LONG
        )
        wanted = {"_id": {"$in": [each["_id"] for each in found if is_foreign_letter(each)]}}

        async def read_foreign() -> dict[Any, ListedLetter]:
            # Foreign letters are read whole, so not all at once: the driver holds a few, and each is shortened.
            documents = letters.find(wanted).batch_size(_FOREIGN_BATCH)
            return {each["_id"]: listed_letter_of(workload, each) async for each in documents}

        foreign = await self.link.run(read_foreign, seconds=LONG) if wanted["_id"]["$in"] else {}
        return [(foreign.get(each["_id"]) or listed_letter_of(workload, each), each) for each in found]

    # --- review -------------------------------------------------------------------------------------------

    async def review(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.review`."""
        return await self._step(letter_ids, ReviewStatus.REVIEWED, actor, reason)

    async def close(self, letter_ids: Sequence[str], *, actor: str, reason: str) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.close`."""
        return await self._step(letter_ids, ReviewStatus.CLOSED, actor, reason)

    async def _step(self, letter_ids: Sequence[str], end: ReviewStatus, actor: str, reason: str) -> list[str]:
        """Move the letters that may take this step; return their ids."""
        if not letter_ids:
            return []
        await import_letters(self.link, self.collections, letter_ids)
        mark = new_mark()
        ids = list(set(letter_ids))
        movable = {"_id": {"$in": ids}, "reviewStatus": {"$in": _starts_of(end)}}
        moving: list[Document] = [{"$set": _step_fields(self.link.clock.now(), end, actor, reason, mark)}]
        moved: set[str] = set()
        for each in self.collections:

            async def move_and_read(letters: Collection = each.letters) -> list[Document]:
                await letters.update_many(movable, moving)
                return await letters.find({"_id": {"$in": ids}, "decisions.by": mark}, {"_id": 1}).to_list()

            moved |= {found["_id"] for found in await self.link.run(move_and_read)}
        return [letter_id for letter_id in dict.fromkeys(letter_ids) if letter_id in moved]

    async def replay(
        self,
        replays: Sequence[tuple[str, NewEntry | None]],
        *,
        actor: str,
        reason: str,
    ) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.replay`."""
        letter_ids = list(dict.fromkeys(letter_id for letter_id, _ in replays))
        await import_letters(self.link, self.collections, letter_ids)
        wanted = dict(reversed(replays))
        mark = new_mark()
        step = _step_fields(self.link.clock.now(), ReviewStatus.REPLAYED, actor, reason, mark)
        moved: set[str] = set()
        for each in self.collections:

            async def run(session: Session, letters_of: WorkloadCollections = each) -> set[str]:
                return await _Replay(self, letters_of, session, step, mark).run(wanted)

            moved |= await self.link.transaction(run)
        return [letter_id for letter_id in letter_ids if letter_id in moved]

    # --- the dead-letter queue ----------------------------------------------------------------------------

    async def letters_to_publish(self, workload: str, limit: int) -> list[DeadLetter]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_publish`."""
        collections = self.collections.get(workload)
        if collections is None:
            return []
        known = (await known_queues(self.link, [collections])).get(workload)
        # Another system puts its own letters into the queue itself, also those that we have imported.
        missing: Any = None if known is None else {"$nin": [known, ELSEWHERE]}
        where = {"reviewStatus": ReviewStatus.PENDING.value, "publishedTo": missing, "generation": {"$exists": True}}

        async def read() -> list[DeadLetter]:
            letters: list[DeadLetter] = []
            size = 0
            async for each in collections.letters.find(where, WITHOUT_SNAPSHOT).sort(_OLDEST_FIRST).limit(limit):
                letters.append(letter_of(collections.workload, each))
                size += len(letters[-1].body)
                if size >= MOST_BODY_BYTES:
                    break
            return letters

        return await self.link.run(read, seconds=LONG)

    async def mark_published(self, letter_ids: Sequence[str], queue: str) -> bool:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_published`.

        If the queue is reset at this very moment, that does no harm: the letters have the epoch of the lost queue.
        """
        known = await known_queues(self.link, list(self.collections))
        if any(epoch != queue for epoch in known.values()):
            return False
        for each in self.collections:
            await self._mark(each, letter_ids, queue)
        return True

    async def letters_to_unpublish(self, workload: str, limit: int) -> list[str]:
        """See :meth:`holdfast.contracts.ports.DeadLetters.letters_to_unpublish`."""
        collections = self.collections.get(workload)
        if collections is None:
            return []
        known = (await known_queues(self.link, [collections])).get(workload)
        where = {
            "reviewStatus": {"$in": list(_REPLAYED_OR_CLOSED)},
            "publishedTo": {"$ne": _unpublished_from(known)},
            "generation": {"$exists": True},
        }
        found = await self.link.run(
            lambda: collections.letters.find(where, {"_id": 1}).sort(_OLDEST_FIRST).limit(limit).to_list(),
        )
        return [each["_id"] for each in found]

    async def mark_unpublished(self, letter_ids: Sequence[str]) -> None:
        """See :meth:`holdfast.contracts.ports.DeadLetters.mark_unpublished`.

        The mark names this queue: a queue that is restored from a copy may have the letters again.
        """
        known = await known_queues(self.link, list(self.collections))
        for each in self.collections:
            await self._mark(each, letter_ids, _unpublished_from(known.get(each.name)))

    async def _mark(self, collections: WorkloadCollections, letter_ids: Sequence[str], mark: str) -> None:
        if letter_ids:
            marked = {"_id": {"$in": list(letter_ids)}}
            await self.link.run(lambda: collections.letters.update_many(marked, {"$set": {"publishedTo": mark}}))


def _unpublished_from(queue: str | None) -> str:
    """In ``publishedTo``: this queue does not have the letter any more."""
    return f"-{queue or ''}"


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


def _starts_of(end: ReviewStatus) -> list[str]:
    """The states from which a letter may take this step."""
    return [start.value for start, ends in REVIEW_STEPS.items() if end in ends]


def _step_fields(now: Any, end: ReviewStatus, actor: str, reason: str, mark: str) -> Document:  # noqa: ANN401 - an expression
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


@dataclass(frozen=True, slots=True)
class _Replay:
    """One try at the letters of one workload, inside a transaction."""

    store: StoreParts
    letters_of: WorkloadCollections
    session: Session
    step: Document
    mark: str

    async def run(self, wanted: Mapping[str, NewEntry | None]) -> set[str]:
        """Start the jobs that may be replayed, and move their letters."""
        fields = {"idempotencyKey": 1, "generation": 1, "jobId": 1, "reviewStatus": 1, "decisions.by": 1}
        letters = await self.letters_of.letters.find(
            {"_id": {"$in": list(wanted)}}, fields | {"now": self.store.link.clock.now()}, session=self.session
        ).to_list()
        moved = {each["_id"] for each in letters if self._moved_before(each)}
        movable = [each for each in letters if each["reviewStatus"] in _starts_of(ReviewStatus.REPLAYED)]
        if not movable:
            return moved
        now = movable[0]["now"]
        same_jobs = {each["_id"]: each for each in movable if wanted[each["_id"]] is None}
        new_jobs = {each["_id"]: entry for each in movable if (entry := wanted[each["_id"]]) is not None}
        started = await self._next_generation(same_jobs, now) | await self._record(new_jobs, now)
        await self._move(started, new_jobs)
        return moved | started

    def _moved_before(self, letter: Mapping[str, Any]) -> bool:
        """Whether an earlier try of this call moved the letter: its commit counted, and its reply was lost."""
        return any(each.get("by") == self.mark for each in letter["decisions"])

    async def _next_generation(self, letters: Mapping[str, Document], now: datetime) -> set[str]:
        """Start the same jobs again: ``dead_lettered -> received``, for letters of the last generation."""
        if not letters:
            return set()
        entries = self.letters_of.entries
        by_job = {each["jobId"]: letter_id for letter_id, each in letters.items()}
        dead = await entries.find(
            {"_id": {"$in": list(by_job)}, "status": Status.DEAD_LETTERED.value, "body": {"$exists": True}},
            dict.fromkeys(("idempotencyKey", "generation", "firstSeenAt", "life", "mortal", "lane"), 1),
            session=self.session,
        ).to_list()
        updates, started = [], set()
        for entry in dead:
            letter = letters[by_job[entry["_id"]]]
            if (entry["idempotencyKey"], entry["generation"]) != (letter["idempotencyKey"], letter["generation"]):
                continue
            started.add(letter["_id"])
            updates.append(UpdateOne({"_id": entry["_id"]}, self._restart_changes(entry, now)))
        if updates:
            await entries.bulk_write(updates, ordered=False, session=self.session)
        return started

    def _restart_changes(self, entry: Mapping[str, Any], now: datetime) -> Document:
        fields: Document = {
            "status": Status.RECEIVED.value,
            "generation": entry["generation"] + 1,
            "attemptHistory": [],
            "attemptCount": 0,
            "notBefore": now,
            "dueAt": now + self.store.grace,
            "lastErrorCode": None,
            "lastErrorMessage": None,
            "updatedAt": now,
        }
        gone = ["note", "result", "progress", "expiresAt", "withdrawn", "proceeded"]
        if "life" in entry:
            start = entry["firstSeenAt"] if entry.get("mortal") else now
            fields["deadline"] = start + timedelta(milliseconds=entry["life"])
        else:
            gone.append("deadline")  # without a ttl, only a cancellation sets a deadline
        if "lane" in entry:
            fields["openLane"] = entry["lane"]
        return {"$set": fields, "$unset": dict.fromkeys(gone, "")}

    async def _record(self, new: Mapping[str, NewEntry], now: datetime) -> set[str]:
        """Record the new jobs with their effects, unless their key or their job id is taken."""
        started: set[str] = set()
        for letter_id, entry in new.items():
            collections = self.store.collections.of(entry.workload)
            taken = {"$or": [{"_id": entry.job_id}, {"idempotencyKey": entry.key}]}
            if await collections.entries.find_one(taken, {"_id": 1}, session=self.session) is None:
                document = new_document(collections.workload, entry, now, self.store.grace, self.mark)
                await collections.entries.insert_one(document, session=self.session)
                started.add(letter_id)
        effects = [
            (entry.job_id, writes_of(entry.job_id, entry.effects))
            for letter_id, entry in new.items()
            if letter_id in started
        ]
        await self.store.records.apply(self.session, now, effects)
        return started

    async def _move(self, letter_ids: set[str], new: Mapping[str, NewEntry]) -> None:
        updates = []
        for letter_id in letter_ids:
            fields = dict(self.step)
            if letter_id in new:
                fields["replayedAs"] = {"$literal": new[letter_id].key}
            updates.append(UpdateOne({"_id": letter_id}, [{"$set": fields}]))
        if updates:
            await self.letters_of.letters.bulk_write(updates, ordered=False, session=self.session)
