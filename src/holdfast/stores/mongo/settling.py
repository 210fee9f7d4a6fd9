"""Settling: transitions, effects and dead letters in one transaction (I3, I4, I8).

Everything is read and written in one snapshot: an entry or a document that somebody else changes in the meantime is a
conflict, and the whole batch is tried again. ``settleId`` tells a batch whose commit was not answered that it counted;
also where a job only proceeded, and so looks as if nothing had happened to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from pymongo import UpdateOne

from holdfast.contracts.ledger import AttemptOutcome, NewEntry, Status
from holdfast.contracts.times import duration_ms
from holdfast.contracts.transitions import (
    OVERDUE,
    Complete,
    Expire,
    MoveToDeadLetters,
    Proceed,
    Release,
    RetryLater,
    Settled,
    Settlement,
    noted_result,
)
from holdfast.stores.folding import Write, told_apart

from .entries import new_document, new_letter, new_mark
from .link import Document, Link, Session
from .records import RecordCollections
from .workload_collections import AllCollections, WorkloadCollections

_PROCESSING: Final = Status.PROCESSING.value
_RUNNING: Final = AttemptOutcome.RUNNING.value

# Seconds. Two living workers are done with each other in milliseconds; a dead one's transaction takes longer to go.
_CONTENTION: Final = 1.0
_CONTENTION_ALONE: Final = 0.25

Ending = Complete | RetryLater | Release | MoveToDeadLetters | Expire
"""A transition that ends the lease."""

_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


async def settle(
    link: Link,
    records: AllCollections,
    record_collections: RecordCollections,
    grace: timedelta,
    settlements: Sequence[Settlement],
) -> list[Settled]:
    """Write everything that the batch decided, for the leases that still hold; see the port."""
    if not settlements:
        return []
    mark = new_mark()
    return await link.transaction(
        lambda session: _Batch(link, records, record_collections, grace, mark, session).settle(settlements),
        contention=_CONTENTION if len(settlements) > 1 else _CONTENTION_ALONE,
    )


class _Batch:
    """One try at a batch, inside its transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - what settling needs
        self,
        link: Link,
        records: AllCollections,
        record_collections: RecordCollections,
        grace: timedelta,
        mark: str,
        session: Session,
    ) -> None:
        self._link = link
        self._records = records
        self._record_collections = record_collections
        self._grace = grace
        self._mark = mark
        self._session = session

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Read the leases, fold the effects, write the documents, the entries and the letters."""
        # The first transition on a lease counts; a second one in the same batch finds it gone, as in the next batch.
        first: dict[tuple[str, str, int], int] = {}
        for position, each in enumerate(settlements):
            first.setdefault((each.workload, each.lease.job_id, each.lease.fence), position)
        answers = {position: Settled(each.lease.job_id, None) for position, each in enumerate(settlements)}
        held: dict[int, Document] = {}
        for position, found in (await self._leases(first)).items():
            if found.get("settleId") == self._mark:  # our own commit, of which we were not told
                answers[position] = _told_again(found)
            elif found["status"] != _PROCESSING:
                continue
            elif isinstance(settlements[position].transition, Proceed) and _too_late(found):
                answers[position] = Settled(found["_id"], Status.PROCESSING, OVERDUE)
            else:
                held[position] = found
        if not held:
            return list(answers.values())
        now: datetime = next(iter(held.values()))["now"]
        notes = await self._apply({position: settlements[position] for position in held}, now)
        writing: dict[str, _Writing] = {}
        for position, found in held.items():
            each, note = settlements[position], notes.get(position)
            if each.workload not in writing:
                writing[each.workload] = _Writing(self._records.of(each.workload), now, self._grace, self._mark)
            answers[position] = writing[each.workload].add(found, each, note)
        for each_writing in writing.values():
            await each_writing.save(self._session)
        return list(answers.values())

    async def _leases(self, first: Mapping[tuple[str, str, int], int]) -> dict[int, Document]:
        """The entries that still have the fence of their transition."""
        by_workload: dict[str, list[str]] = {}
        for workload, job_id, _ in first:
            by_workload.setdefault(workload, []).append(job_id)
        names = "status fence lettersUntil settleId note deadline proceeded openLane"
        reading = {
            **dict.fromkeys(names.split(), 1),
            "last": {"$last": "$attemptHistory.outcome"},
            # Not what the counter says: another system's worker may have raised it.
            "attemptCount": {"$size": "$attemptHistory"},
            "now": self._link.clock.now(),
        }
        found: dict[int, Document] = {}
        for workload, job_ids in by_workload.items():
            records = self._records.get(workload)
            if records is None:
                continue
            cursor = records.entries.find({"_id": {"$in": job_ids}}, reading, session=self._session)
            for entry in await cursor.to_list():
                position = first.get((workload, entry["_id"], entry["fence"]))
                if position is not None:
                    found[position] = entry
        return dict(sorted(found.items()))

    async def _apply(self, settlements: Mapping[int, Settlement], now: datetime) -> dict[int, str | None]:
        effects: dict[int, tuple[str, list[Write]]] = {}
        followers: list[NewEntry] = []
        for position, each in settlements.items():
            if each.transition.effects:
                writes, entries = told_apart(each.transition.effects)
                effects[position] = (each.lease.job_id, writes)
                followers += entries
        if not effects:
            return {}
        notes = await self._record_collections.apply(self._session, now, list(effects.values()))
        await self._follow(followers, now)
        return dict(zip(effects, notes, strict=True))

    async def _follow(self, entries: Sequence[NewEntry], now: datetime) -> None:
        """Record jobs that follow from others, due at once: maintenance's next round puts them into their queues."""
        by_workload: dict[str, list[UpdateOne]] = {}
        for entry in entries:
            document = new_document(self._records.of(entry.workload).workload, entry, now, timedelta(0), self._mark)
            known = {"_id": document.pop("_id")}
            by_workload.setdefault(entry.workload, []).append(UpdateOne(known, {"$setOnInsert": document}, upsert=True))
        for workload, writes in by_workload.items():
            await self._records.of(workload).entries.bulk_write(writes, session=self._session)


def _told_again(entry: Mapping[str, Any]) -> Settled:
    status = Status(entry["status"])
    # The note on a job that is still in work tells of an earlier attempt.
    return Settled(entry["_id"], status, None if status is Status.PROCESSING else entry.get("note"))


def _too_late(entry: Mapping[str, Any]) -> bool:
    deadline = entry.get("deadline")
    return deadline is not None and deadline <= entry["now"]


class _Writing:
    """What a batch of transitions changes in the records of one workload."""

    def __init__(self, records: WorkloadCollections, now: datetime, grace: timedelta, mark: str) -> None:
        self._records = records
        self._now = now
        self._grace = grace
        self._mark = mark
        self._updates: list[UpdateOne] = []
        self._dead_letterings: dict[str, MoveToDeadLetters] = {}

    def add(self, entry: Mapping[str, Any], settlement: Settlement, note: str | None) -> Settled:
        """Translate one transition; return the state and the note that the entry ends with."""
        if isinstance(settlement.transition, Proceed):
            self._proceeds(entry, settlement.transition)
            return Settled(entry["_id"], Status.PROCESSING)
        if isinstance(settlement.transition, Complete | Expire) and settlement.transition.note is not None:
            note = settlement.transition.note
        changes = self._changes(entry, settlement.transition, note)
        fields, gone = changes["$set"], changes["$unset"]
        fields |= {"updatedAt": self._now, "settleId": self._mark}
        if note is not None:
            fields["note"] = note
        elif "note" in entry:
            gone["note"] = ""
        if "proceeded" in entry:
            gone["proceeded"] = ""
        self._update(entry, changes)
        return Settled(entry["_id"], Status(fields["status"]), note)

    def _changes(self, entry: Mapping[str, Any], ending: Ending, note: str | None) -> Document:
        match ending:
            case Complete() as transition:
                fields = self._closed(entry, AttemptOutcome.SUCCEEDED) | self._kept(entry, transition.retention)
                if transition.result is not None:
                    fields["result"] = _to_json(noted_result(transition.result, note))
                return self._ended(entry, Status.PROCESSED, fields)
            case RetryLater() as transition:
                fields = self._closed(entry, AttemptOutcome.FAILED, transition.code, transition.message)
                fields |= {"lastErrorCode": transition.code, "lastErrorMessage": transition.message}
                return self._waits(Status.FAILED, fields, transition.after)
            case Release() as transition:
                return self._released(entry, transition)
            case MoveToDeadLetters() as transition:
                self._dead_letterings[entry["_id"]] = transition
                fields = self._closed(entry, AttemptOutcome.FAILED, transition.code, transition.message)
                fields |= {"lastErrorCode": transition.code, "lastErrorMessage": transition.message}
                # An entry lives as long as its letters: a replay finds it, and a duplicate never passes (I12).
                letters_until = max(self._after(transition.letter_retention), entry.get("lettersUntil") or self._now)
                fields["lettersUntil"] = letters_until
                fields |= self._kept({"lettersUntil": letters_until}, transition.retention)
                return self._ended(entry, Status.DEAD_LETTERED, fields)
            case Expire() as transition:
                fields = self._closed(entry, AttemptOutcome.FAILED, "EXPIRED", "The job outlived its deadline.")
                fields |= self._kept(entry, transition.retention)
                return self._ended(entry, Status.EXPIRED, fields)
            case _ as never:
                assert_never(never)

    async def save(self, session: Session) -> None:
        """Write the entries, then the letters that tell of them."""
        done = await self._records.entries.bulk_write(self._updates, ordered=False, session=session)
        if done.matched_count != len(self._updates):
            message = f"{done.matched_count} of {len(self._updates)} entries were found again in their own snapshot."
            raise RuntimeError(message)
        if self._dead_letterings:
            dead = self._records.entries.find({"_id": {"$in": list(self._dead_letterings)}}, session=session)
            letters = [
                new_letter(self._records.workload, entry, self._dead_letterings[entry["_id"]], self._now)
                for entry in await dead.to_list()
            ]
            await self._records.letters.insert_many(letters, ordered=False, session=session)

    # --- parts of an update -------------------------------------------------------------------------------

    def _after(self, duration: timedelta) -> datetime:
        return self._now + timedelta(milliseconds=duration_ms(duration))

    def _closed(
        self,
        entry: Mapping[str, Any],
        outcome: AttemptOutcome,
        code: str | None = None,
        message: str | None = None,
    ) -> Document:
        """The end of the attempt that runs, if one does."""
        if entry.get("last") != _RUNNING:
            return {}
        attempt = f"attemptHistory.{entry['attemptCount'] - 1}"
        fields: Document = {
            f"{attempt}.outcome": outcome.value,
            f"{attempt}.finishedAt": self._now,
            "attemptCount": entry["attemptCount"],
        }
        if code is not None:
            fields |= {f"{attempt}.errorCode": code, f"{attempt}.errorMessage": message}
        return fields

    def _kept(self, entry: Mapping[str, Any], retention: timedelta) -> Document:
        return {"expiresAt": max(self._after(retention), entry.get("lettersUntil") or self._now)}

    @staticmethod
    def _ended(entry: Mapping[str, Any], status: Status, fields: Document) -> Document:
        gone = {"leaseUntil": "", "dueAt": ""}
        if "openLane" in entry:
            gone["openLane"] = ""
        return {"$set": fields | {"status": status.value}, "$unset": gone}

    def _waits(self, status: Status, fields: Document, after: timedelta) -> Document:
        not_before = self._after(after)
        fields |= {"status": status.value, "notBefore": not_before, "dueAt": not_before + self._grace}
        return {"$set": fields, "$unset": {"leaseUntil": ""}}

    def _released(self, entry: Mapping[str, Any], transition: Release) -> Document:
        """The attempt is cancelled, and the entry is what it was before."""
        running = entry.get("last") == _RUNNING
        attempts = entry["attemptCount"] - running
        changes = self._waits(Status.FAILED if attempts else Status.RECEIVED, {}, transition.after)
        if running:
            changes["$set"]["attemptCount"] = attempts
            changes["$pop"] = {"attemptHistory": 1}
        return changes

    def _proceeds(self, entry: Mapping[str, Any], transition: Proceed) -> None:
        """The lease and the attempt stay; all that changes is what a claim finds should the worker vanish."""
        fields: Document = {"settleId": self._mark}
        if not transition.repeatable:
            fields["proceeded"] = True
        self._update(entry, {"$set": fields})

    def _update(self, entry: Mapping[str, Any], changes: Document) -> None:
        # By its id alone, which is the server's shortest way: that the lease holds was read in this very snapshot.
        self._updates.append(UpdateOne({"_id": entry["_id"]}, changes))
