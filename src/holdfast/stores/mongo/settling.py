"""Settling: transitions, effects and dead letters in one transaction (I3, I4, I8).

Everything is read and written in one snapshot: an entry or a record that another transaction changes meanwhile is a
conflict, and the whole batch is tried again. When the reply to a commit was lost, the batch finds its own commit by
``settleId``. A job that only proceeded gets a ``settleId`` too, because its other fields do not change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from pymongo import UpdateOne

from holdfast.contracts.ledger import AttemptOutcome, NewEntry, Status
from holdfast.contracts.times import duration_ms
from holdfast.contracts.transitions import (
    OVERDUE,
    Complete,
    Ending,
    Expire,
    MoveToDeadLetters,
    Proceed,
    Release,
    RetryLater,
    Settled,
    Settlement,
    noted_result,
)
from holdfast.stores.fields import EXPIRED
from holdfast.stores.folding import effects_of, note_of

from .documents import new_document, new_letter, new_mark
from .link import Document, Session
from .schema import StoreParts, WorkloadCollections

_PROCESSING: Final = Status.PROCESSING.value
_RUNNING: Final = AttemptOutcome.RUNNING.value

# Seconds. A conflict of two live workers is over in milliseconds; the transaction of a dead worker stays longer.
_CONTENTION: Final = 1.0
_CONTENTION_ALONE: Final = 0.25

_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Settling(StoreParts):
    """The part of the store that settles jobs."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See :meth:`holdfast.contracts.ports.Ledger.settle`."""
        if not settlements:
            return []
        mark = new_mark()
        return await self.link.transaction(
            lambda session: _Batch(self, mark, session).settle(settlements),
            contention=_CONTENTION if len(settlements) > 1 else _CONTENTION_ALONE,
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    """One try at a batch, inside its transaction."""

    store: StoreParts
    mark: str
    session: Session

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Read the leases, fold the effects, write the records, the entries and the letters."""
        # The first transition of a lease counts. A second transition is stale, also in the same batch.
        first: dict[tuple[str, str, int], int] = {}
        for position, each in enumerate(settlements):
            first.setdefault((each.workload, each.lease.job_id, each.lease.fence), position)
        answers = {position: Settled(each.lease.job_id, None) for position, each in enumerate(settlements)}
        held: dict[int, Document] = {}
        for position, found in (await self._read_held(first)).items():
            if found.get("settleId") == self.mark:  # our own commit, whose reply was lost
                answers[position] = _committed_before(found)
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
        writes: dict[str, _WorkloadWrites] = {}
        for position, found in held.items():
            each, note = settlements[position], notes.get(position)
            if each.workload not in writes:
                collections = self.store.collections.of(each.workload)
                writes[each.workload] = _WorkloadWrites(collections, now, self.store.grace, self.mark)
            answers[position] = writes[each.workload].add(found, each, note)
        for workload_writes in writes.values():
            await workload_writes.save(self.session)
        return list(answers.values())

    async def _read_held(self, first: Mapping[tuple[str, str, int], int]) -> dict[int, Document]:
        """The entries that still have the fence of their transition, by position."""
        by_workload: dict[str, list[str]] = {}
        for workload, job_id, _ in first:
            by_workload.setdefault(workload, []).append(job_id)
        names = "status fence lettersUntil settleId note deadline proceeded openLane"
        reading = {
            **dict.fromkeys(names.split(), 1),
            "last": {"$last": "$attemptHistory.outcome"},
            # Not the stored counter: another system's worker may have changed it.
            "attemptCount": {"$size": "$attemptHistory"},
            "now": self.store.link.clock.now(),
        }
        found: dict[int, Document] = {}
        for workload, job_ids in by_workload.items():
            collections = self.store.collections.get(workload)
            if collections is None:
                continue
            cursor = collections.entries.find({"_id": {"$in": job_ids}}, reading, session=self.session)
            for entry in await cursor.to_list():
                position = first.get((workload, entry["_id"], entry["fence"]))
                if position is not None:
                    found[position] = entry
        return dict(sorted(found.items()))

    async def _apply(self, settlements: Mapping[int, Settlement], now: datetime) -> dict[int, str | None]:
        effects, enqueued = effects_of(settlements)
        if not effects:
            return {}
        notes = await self.store.records.apply(self.session, now, list(effects.values()))
        await self._follow(enqueued, now)
        return dict(zip(effects, notes, strict=True))

    async def _follow(self, entries: Sequence[NewEntry], now: datetime) -> None:
        """Record jobs that other jobs enqueued. They are due at once: the next round of maintenance publishes them."""
        by_workload: dict[str, list[UpdateOne]] = {}
        for entry in entries:
            document = new_document(
                self.store.collections.of(entry.workload).workload, entry, now, timedelta(0), self.mark
            )
            known = {"_id": document.pop("_id")}
            by_workload.setdefault(entry.workload, []).append(UpdateOne(known, {"$setOnInsert": document}, upsert=True))
        for workload, writes in by_workload.items():
            await self.store.collections.of(workload).entries.bulk_write(writes, session=self.session)


def _committed_before(entry: Mapping[str, Any]) -> Settled:
    """The answer for an entry that an earlier try of this batch has settled."""
    status = Status(entry["status"])
    # The note on a job that is still in work is from an earlier attempt.
    return Settled(entry["_id"], status, None if status is Status.PROCESSING else entry.get("note"))


def _too_late(entry: Mapping[str, Any]) -> bool:
    deadline = entry.get("deadline")
    return deadline is not None and deadline <= entry["now"]


class _WorkloadWrites:
    """The changes of a batch of transitions in the collections of one workload."""

    def __init__(self, collections: WorkloadCollections, now: datetime, grace: timedelta, mark: str) -> None:
        self._collections = collections
        self._now = now
        self._grace = grace
        self._mark = mark
        self._updates: list[UpdateOne] = []
        self._dead_letterings: dict[str, MoveToDeadLetters] = {}

    def add(self, entry: Mapping[str, Any], settlement: Settlement, note: str | None) -> Settled:
        """Add the changes of one transition; return the new state and the note of the entry."""
        if isinstance(settlement.transition, Proceed):
            self._proceed(entry, settlement.transition)
            return Settled(entry["_id"], Status.PROCESSING)
        note = note_of(settlement, note)
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
                return self._waits(Status.FAILED, self._failed(entry, transition), transition.after)
            case Release() as transition:
                return self._released(entry, transition)
            case MoveToDeadLetters() as transition:
                self._dead_letterings[entry["_id"]] = transition
                fields = self._failed(entry, transition)
                # The entry stays as long as its letters, for a replay and against duplicates (I12).
                letters_until = max(self._after(transition.letter_retention), entry.get("lettersUntil") or self._now)
                fields["lettersUntil"] = letters_until
                fields |= self._kept({"lettersUntil": letters_until}, transition.retention)
                return self._ended(entry, Status.DEAD_LETTERED, fields)
            case Expire() as transition:
                fields = self._closed(entry, AttemptOutcome.FAILED, *EXPIRED)
                fields |= self._kept(entry, transition.retention)
                return self._ended(entry, Status.EXPIRED, fields)
            case _ as never:
                assert_never(never)

    async def save(self, session: Session) -> None:
        """Write the entries, then their letters."""
        done = await self._collections.entries.bulk_write(self._updates, ordered=False, session=session)
        if done.matched_count != len(self._updates):
            message = f"{done.matched_count} of {len(self._updates)} entries were found again in their own snapshot."
            raise RuntimeError(message)
        if self._dead_letterings:
            dead = self._collections.entries.find({"_id": {"$in": list(self._dead_letterings)}}, session=session)
            letters = [
                new_letter(self._collections.workload, entry, self._dead_letterings[entry["_id"]], self._now)
                for entry in await dead.to_list()
            ]
            await self._collections.letters.insert_many(letters, ordered=False, session=session)

    # --- parts of an update -------------------------------------------------------------------------------

    def _after(self, duration: timedelta) -> datetime:
        return self._now + timedelta(milliseconds=duration_ms(duration))

    def _failed(self, entry: Mapping[str, Any], transition: RetryLater | MoveToDeadLetters) -> Document:
        """The fields that close the running attempt as failed, and the entry's last error."""
        error = (transition.code, transition.message)
        fields = self._closed(entry, AttemptOutcome.FAILED, *error, transition.traceback)
        return fields | {"lastErrorCode": transition.code, "lastErrorMessage": transition.message}

    def _closed(
        self,
        entry: Mapping[str, Any],
        outcome: AttemptOutcome,
        code: str | None = None,
        message: str | None = None,
        traceback: str | None = None,
    ) -> Document:
        """The fields that close the running attempt, if there is one."""
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
        if traceback is not None:
            fields[f"{attempt}.traceback"] = traceback
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
        """The running attempt is removed, and the entry is as it was before the claim."""
        running = entry.get("last") == _RUNNING
        attempts = entry["attemptCount"] - running
        changes = self._waits(Status.FAILED if attempts else Status.RECEIVED, {}, transition.after)
        if running:
            changes["$set"]["attemptCount"] = attempts
            changes["$pop"] = {"attemptHistory": 1}
        return changes

    def _proceed(self, entry: Mapping[str, Any], transition: Proceed) -> None:
        """Mark the entry. The lease and the attempt stay; the mark is for the next claim if the worker vanishes."""
        fields: Document = {"settleId": self._mark}
        if not transition.repeatable:
            fields["proceeded"] = True
        self._update(entry, {"$set": fields})

    def _update(self, entry: Mapping[str, Any], changes: Document) -> None:
        # By the id alone, which is fastest for the server: the lease was checked in this same snapshot.
        self._updates.append(UpdateOne({"_id": entry["_id"]}, changes))
