"""Replaying dead letters: the letter's step and the job's next generation in one transaction (I9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo import UpdateOne

from holdfast.contracts.dead_letters import ReviewStatus
from holdfast.contracts.ledger import NewEntry, Status
from holdfast.stores.folding import writes_of

from .entries import new_document, new_mark
from .letters import starts_of, step_fields
from .link import Document, Link, Session
from .records import RecordCollections
from .workload_collections import AllCollections, WorkloadCollections

Replays = Mapping[str, NewEntry | None]


async def replay(  # noqa: PLR0913 - who, what, why
    link: Link,
    collections: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    replays: Sequence[tuple[str, NewEntry | None]],
    *,
    actor: str,
    reason: str,
) -> list[str]:
    """``reviewed -> replayed`` with the next generation, or with the new entry; return the ids that moved."""
    wanted = dict(reversed(replays))
    mark = new_mark()
    moved: set[str] = set()
    for each in collections:
        moved |= await link.transaction(
            lambda session, each=each: _Replay(  # type: ignore[misc]
                link, collections, record_collections, each, grace, session, actor, reason, mark
            ).run(wanted),
        )
    return [letter_id for letter_id in dict.fromkeys(letter_id for letter_id, _ in replays) if letter_id in moved]


class _Replay:
    """One try at the letters of one workload, inside a transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - who, what, why, where
        self,
        link: Link,
        collections: AllCollections,
        record_collections: RecordCollections,
        letters_of: WorkloadCollections,
        grace: timedelta,
        session: Session,
        actor: str,
        reason: str,
        mark: str,
    ) -> None:
        self._link = link
        self._collections = collections
        self._record_collections = record_collections
        self._letters_of = letters_of
        self._grace = grace
        self._session = session
        self._step = step_fields(link.clock.now(), ReviewStatus.REPLAYED, actor, reason, mark)
        self._mark = mark

    async def run(self, wanted: Replays) -> set[str]:
        """Start the jobs that may be replayed, and move their letters."""
        fields = {"idempotencyKey": 1, "generation": 1, "jobId": 1, "reviewStatus": 1, "decisions.by": 1}
        letters = await self._letters_of.letters.find(
            {"_id": {"$in": list(wanted)}}, fields | {"now": self._link.clock.now()}, session=self._session
        ).to_list()
        moved = {each["_id"] for each in letters if self._moved_before(each)}
        movable = [each for each in letters if each["reviewStatus"] in starts_of(ReviewStatus.REPLAYED)]
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
        return any(each.get("by") == self._mark for each in letter["decisions"])

    async def _next_generation(self, letters: Mapping[str, Document], now: datetime) -> set[str]:
        """Start the same jobs again: ``dead_lettered -> received``, for letters of the last generation."""
        if not letters:
            return set()
        entries = self._letters_of.entries
        by_job = {each["jobId"]: letter_id for letter_id, each in letters.items()}
        dead = await entries.find(
            {"_id": {"$in": list(by_job)}, "status": Status.DEAD_LETTERED.value, "body": {"$exists": True}},
            dict.fromkeys(("idempotencyKey", "generation", "firstSeenAt", "life", "mortal", "lane"), 1),
            session=self._session,
        ).to_list()
        updates, started = [], set()
        for entry in dead:
            letter = letters[by_job[entry["_id"]]]
            if (entry["idempotencyKey"], entry["generation"]) != (letter["idempotencyKey"], letter["generation"]):
                continue
            started.add(letter["_id"])
            updates.append(UpdateOne({"_id": entry["_id"]}, self._restart_changes(entry, now)))
        if updates:
            await entries.bulk_write(updates, ordered=False, session=self._session)
        return started

    def _restart_changes(self, entry: Mapping[str, Any], now: datetime) -> Document:
        fields: Document = {
            "status": Status.RECEIVED.value,
            "generation": entry["generation"] + 1,
            "attemptHistory": [],
            "attemptCount": 0,
            "notBefore": now,
            "dueAt": now + self._grace,
            "lastErrorCode": None,
            "lastErrorMessage": None,
            "updatedAt": now,
        }
        gone = ["note", "result", "expiresAt", "withdrawn", "proceeded"]
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
            collections = self._collections.of(entry.workload)
            taken = {"$or": [{"_id": entry.job_id}, {"idempotencyKey": entry.key}]}
            if await collections.entries.find_one(taken, {"_id": 1}, session=self._session) is None:
                document = new_document(collections.workload, entry, now, self._grace, self._mark)
                await collections.entries.insert_one(document, session=self._session)
                started.add(letter_id)
        effects = [
            (entry.job_id, writes_of(entry.job_id, entry.effects))
            for letter_id, entry in new.items()
            if letter_id in started
        ]
        await self._record_collections.apply(self._session, now, effects)
        return started

    async def _move(self, letter_ids: set[str], new: Mapping[str, NewEntry]) -> None:
        updates = []
        for letter_id in letter_ids:
            fields = dict(self._step)
            if letter_id in new:
                fields["replayedAs"] = {"$literal": new[letter_id].key}
            updates.append(UpdateOne({"_id": letter_id}, [{"$set": fields}]))
        if updates:
            await self._letters_of.letters.bulk_write(updates, ordered=False, session=self._session)
