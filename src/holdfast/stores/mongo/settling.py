"""Settling: verdicts, effects and dead letters in one transaction (I3, I4, I8).

Everything is read and written in one snapshot: an entry or a document that somebody else changes in the meantime is a
conflict, and the whole batch is tried again. ``settleId`` tells a batch whose commit was not answered that it counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from pymongo import UpdateOne

from holdfast.contracts.ledger import AttemptOutcome, Status
from holdfast.contracts.settlement import Bury, Complete, Expire, HandBack, RetryLater, Settled, Settlement
from holdfast.contracts.times import duration_ms

from .documents import Shelves
from .entries import new_letter, new_mark
from .link import Document, Link, Session
from .records import AllRecords, Records

_PROCESSING: Final = Status.PROCESSING.value
_RUNNING: Final = AttemptOutcome.RUNNING.value

# Seconds. Two living workers are done with each other in milliseconds; a dead one's transaction takes longer to go.
_CONTENTION: Final = 1.0
_CONTENTION_ALONE: Final = 0.25

_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


async def settle(
    link: Link,
    records: AllRecords,
    shelves: Shelves,
    grace: timedelta,
    settlements: Sequence[Settlement],
) -> list[Settled]:
    """Write everything that the batch decided, for the leases that still hold; see the port."""
    if not settlements:
        return []
    mark = new_mark()
    return await link.transaction(
        lambda session: _Batch(link, records, shelves, grace, mark, session).settle(settlements),
        contention=_CONTENTION if len(settlements) > 1 else _CONTENTION_ALONE,
    )


class _Batch:
    """One try at a batch, inside its transaction."""

    def __init__(  # noqa: PLR0913, PLR0917 - what settling needs
        self,
        link: Link,
        records: AllRecords,
        shelves: Shelves,
        grace: timedelta,
        mark: str,
        session: Session,
    ) -> None:
        self._link = link
        self._records = records
        self._shelves = shelves
        self._grace = grace
        self._mark = mark
        self._session = session

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Read the leases, fold the effects, write the documents, the entries and the letters."""
        # The first verdict on a lease counts; a second one in the same batch finds it gone, as in the next batch.
        first: dict[tuple[str, str, int], int] = {}
        for position, each in enumerate(settlements):
            first.setdefault((each.workload, each.lease.job_id, each.lease.fence), position)
        answers = {position: Settled(each.lease.job_id, None) for position, each in enumerate(settlements)}
        held: dict[int, Document] = {}
        for position, found in (await self._leases(first)).items():
            if found["status"] == _PROCESSING:
                held[position] = found
            elif found.get("settleId") == self._mark:  # our own commit, of which we were not told
                answers[position] = Settled(found["_id"], Status(found["status"]), found.get("note"))
        if not held:
            return list(answers.values())
        now: datetime = next(iter(held.values()))["now"]
        notes = await self._apply({position: settlements[position] for position in held}, now)
        writing: dict[str, _Writing] = {}
        for position, found in held.items():
            each, note = settlements[position], notes.get(position)
            if each.workload not in writing:
                writing[each.workload] = _Writing(self._records.of(each.workload), now, self._grace, self._mark)
            status = writing[each.workload].add(found, each, note)
            answers[position] = Settled(each.lease.job_id, status, note)
        for each_writing in writing.values():
            await each_writing.save(self._session)
        return list(answers.values())

    async def _leases(self, first: Mapping[tuple[str, str, int], int]) -> dict[int, Document]:
        """The entries that still have the fence of their verdict."""
        by_workload: dict[str, list[str]] = {}
        for workload, job_id, _ in first:
            by_workload.setdefault(workload, []).append(job_id)
        reading = {
            **dict.fromkeys(("status", "fence", "attemptCount", "lettersUntil", "settleId", "note"), 1),
            "last": {"$last": "$attemptHistory.outcome"},
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
        effects = {
            position: (each.lease.job_id, each.verdict.effects)
            for position, each in settlements.items()
            if isinstance(each.verdict, Complete | Expire) and each.verdict.effects
        }
        if not effects:
            return {}
        notes = await self._shelves.apply(self._session, now, list(effects.values()))
        return dict(zip(effects, notes, strict=True))


class _Writing:
    """What a batch of verdicts changes in the records of one workload."""

    def __init__(self, records: Records, now: datetime, grace: timedelta, mark: str) -> None:
        self._records = records
        self._now = now
        self._grace = grace
        self._mark = mark
        self._updates: list[UpdateOne] = []
        self._burials: dict[str, Bury] = {}

    def add(self, entry: Mapping[str, Any], settlement: Settlement, note: str | None) -> Status:
        """Translate one verdict; return the state that the entry ends in."""
        match settlement.verdict:
            case Complete() as verdict:
                fields = self._closed(entry, AttemptOutcome.SUCCEEDED) | self._kept(entry, verdict.retention)
                if note is not None:
                    fields["note"] = note
                if verdict.result is not None:
                    fields["result"] = _to_json(verdict.result)
                return self._ended(entry, Status.PROCESSED, fields)
            case RetryLater() as verdict:
                fields = self._closed(entry, AttemptOutcome.FAILED, verdict.code, verdict.message)
                fields |= {"lastErrorCode": verdict.code, "lastErrorMessage": verdict.message}
                return self._waits(entry, Status.FAILED, fields, verdict.after)
            case HandBack() as verdict:
                return self._handed_back(entry, verdict)
            case Bury() as verdict:
                self._burials[entry["_id"]] = verdict
                fields = self._closed(entry, AttemptOutcome.FAILED, verdict.code, verdict.message)
                fields |= {"lastErrorCode": verdict.code, "lastErrorMessage": verdict.message}
                # An entry lives as long as its letters: a replay finds it, and a duplicate never passes (I12).
                letters_until = max(self._after(verdict.letter_retention), entry.get("lettersUntil") or self._now)
                fields["lettersUntil"] = letters_until
                fields |= self._kept({"lettersUntil": letters_until}, verdict.retention)
                return self._ended(entry, Status.DEAD_LETTERED, fields)
            case Expire() as verdict:
                fields = self._closed(entry, AttemptOutcome.FAILED, "EXPIRED", "The job outlived its deadline.")
                fields |= self._kept(entry, verdict.retention)
                if note is not None:
                    fields["note"] = note
                return self._ended(entry, Status.EXPIRED, fields)
            case _ as never:
                assert_never(never)

    async def save(self, session: Session) -> None:
        """Write the entries, then the letters that tell of them."""
        done = await self._records.entries.bulk_write(self._updates, ordered=False, session=session)
        if done.matched_count != len(self._updates):
            message = f"{done.matched_count} of {len(self._updates)} entries were found again in their own snapshot."
            raise RuntimeError(message)
        if self._burials:
            dead = self._records.entries.find({"_id": {"$in": list(self._burials)}}, session=session)
            letters = [
                new_letter(self._records.workload, entry, self._burials[entry["_id"]], self._now)
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
        fields: Document = {f"{attempt}.outcome": outcome.value, f"{attempt}.finishedAt": self._now}
        if code is not None:
            fields |= {f"{attempt}.errorCode": code, f"{attempt}.errorMessage": message}
        return fields

    def _kept(self, entry: Mapping[str, Any], retention: timedelta) -> Document:
        return {"expiresAt": max(self._after(retention), entry.get("lettersUntil") or self._now)}

    def _ended(self, entry: Mapping[str, Any], status: Status, fields: Document) -> Status:
        return self._update(entry, status, {"$set": fields, "$unset": {"leaseUntil": "", "dueAt": ""}})

    def _waits(self, entry: Mapping[str, Any], status: Status, fields: Document, after: timedelta) -> Status:
        not_before = self._after(after)
        fields |= {"notBefore": not_before, "dueAt": not_before + self._grace}
        return self._update(entry, status, {"$set": fields, "$unset": {"leaseUntil": ""}})

    def _handed_back(self, entry: Mapping[str, Any], verdict: HandBack) -> Status:
        """The attempt is withdrawn, and the entry is what it was before."""
        attempts = entry["attemptCount"]
        if entry.get("last") != _RUNNING:
            return self._waits(entry, Status.FAILED if attempts else Status.RECEIVED, {}, verdict.after)
        attempts -= 1
        not_before = self._after(verdict.after)
        fields = {"attemptCount": attempts, "notBefore": not_before, "dueAt": not_before + self._grace}
        status = Status.FAILED if attempts else Status.RECEIVED
        return self._update(
            entry, status, {"$set": fields, "$unset": {"leaseUntil": ""}, "$pop": {"attemptHistory": 1}}
        )

    def _update(self, entry: Mapping[str, Any], status: Status, changes: Document) -> Status:
        changes["$set"] |= {"status": status.value, "updatedAt": self._now, "settleId": self._mark}
        # By its id alone, which is the server's shortest way: that the lease holds was read in this very snapshot.
        self._updates.append(UpdateOne({"_id": entry["_id"]}, changes))
        return status
