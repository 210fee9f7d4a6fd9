"""Claiming, renewing and cancelling: the server decides for each document, on its own clock (I4, I5, I15).

An update of many documents is no transaction, and the driver does not retry it. So a claim writes the mark of its
call into the entries. When the update is sent again, it skips entries with this mark. Reading the entries back shows
which of them have the mark.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pymongo import UpdateMany, UpdateOne

from holdfast.contracts.ledger import (
    AlreadySettled,
    AttemptOutcome,
    Cancelled,
    Claimed,
    ClaimResult,
    Exhausted,
    Interrupted,
    Lease,
    NotNow,
    Overdue,
    Status,
    Unrecorded,
)
from holdfast.contracts.times import isoformat
from holdfast.stores.fields import LOST

from .documents import new_mark
from .link import BRIEF, Document, Link
from .schema import WAITING, StoreParts

_RUNNING: Final = AttemptOutcome.RUNNING.value
_PROCESSING: Final = Status.PROCESSING.value
_MOMENT: Final = timedelta(milliseconds=1)
_HELD: Final = timedelta(seconds=1)
# Seconds that a claim of many jobs, and of one job, may wait for documents that a transaction holds.
_TOGETHER: Final = 2.0
_ALONE: Final = 1.0


class Claiming(StoreParts):
    """The part of the store that claims entries, renews their leases, and cancels them for their senders."""

    async def claim(
        self,
        workload: str,
        job_ids: Sequence[str],
        *,
        worker: str,
        lease: timedelta,
        max_attempts: int,
    ) -> list[ClaimResult]:
        """See :meth:`holdfast.contracts.ports.Ledger.claim`. Claims the free jobs with one update, then reads all."""
        collections = self.collections.get(workload)
        if collections is None:
            return [Unrecorded(job_id) for job_id in job_ids]
        if not job_ids:
            return []
        link, entries = self.link, collections.entries
        wanted = list(dict.fromkeys(job_ids))
        mark = new_mark()
        free = {"claimId": {"$ne": mark}, "$expr": _is_free(link)}
        taking = _taking(link, mark, worker, lease, max_attempts)
        reading = _reading(link)

        async def take(ids: Sequence[str]) -> None:
            await entries.update_many({"_id": {"$in": ids}, **free}, taking, hint="_id_")

        shortest = _MOMENT
        if not await link.in_time(lambda: take(wanted), _TOGETHER):
            # One entry in a dead client's transaction makes all others wait. So each job is claimed by itself.
            shortest = _HELD
            await asyncio.gather(*(link.in_time(partial(take, [job_id]), _ALONE) for job_id in wanted))
        rows = await link.run(lambda: entries.find({"_id": {"$in": wanted}}, reading).to_list())
        found = {each["_id"]: each for each in rows}
        results: list[ClaimResult] = []
        seen: set[str] = set()
        for job_id in job_ids:
            if job_id in seen:  # delivered twice in one batch: the first delivery counts
                results.append(NotNow(job_id, lease))
            else:
                seen.add(job_id)
                results.append(_result(found.get(job_id), job_id, mark, shortest))
        return results

    async def renew(self, workload: str, leases: Sequence[Lease], lease: timedelta) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.renew`. The entries are read only when a lease was lost."""
        collections = self.collections.get(workload)
        if collections is None or not leases:
            return list(leases)
        by_fence: dict[int, set[str]] = {}
        for each in leases:
            by_fence.setdefault(each.fence, set()).add(each.job_id)
        until = self.link.clock.now(lease)
        prolonging = [
            UpdateMany(
                {"_id": {"$in": list(job_ids)}, "fence": fence, "status": _PROCESSING},
                [{"$set": {"leaseUntil": until, "dueAt": until}}],
            )
            for fence, job_ids in by_fence.items()
        ]
        result = await self.link.run(lambda: collections.entries.bulk_write(prolonging, ordered=False))
        if result.matched_count == len(set(leases)):
            return []
        job_ids = list({each.job_id for each in leases})
        held = {"_id": {"$in": job_ids}, "status": _PROCESSING}
        found = await self.link.run(lambda: collections.entries.find(held, {"fence": 1}).to_list())
        fences = {each["_id"]: each["fence"] for each in found}
        return [each for each in leases if fences.get(each.job_id) != each.fence]

    async def note_progress(self, workload: str, progress: Sequence[tuple[Lease, Mapping[str, Any]]]) -> None:
        """See :meth:`holdfast.contracts.ports.Ledger.note_progress`.

        An entry that a dead client's transaction holds is not waited for.
        """
        collections = self.collections.get(workload)
        if collections is None or not progress:
            return
        at = isoformat(await self.link.about_now())
        writes = [
            UpdateOne(
                {"_id": lease.job_id, "fence": lease.fence, "status": _PROCESSING},
                {"$set": {"progress": {**told, "at": at}}},
            )
            for lease, told in dict(progress).items()
        ]
        await self.link.in_time(lambda: collections.entries.bulk_write(writes, ordered=False), BRIEF)

    async def cancel(self, workload: str, job_ids: Sequence[str], *, running: bool = False) -> list[Cancelled]:
        """See :meth:`holdfast.contracts.ports.Ledger.cancel`.

        The jobs get the mark of this call, with their state. So a claim right after it does not change the answer.
        """
        collections = self.collections.get(workload)
        if collections is None or not job_ids:
            return [Cancelled.TOO_LATE] * len(job_ids)
        entries = collections.entries
        mark, now = new_mark(), self.link.clock.now()
        answers = {mark: Cancelled.ENDS, f"{mark}-stop": Cancelled.STOPS}
        ends, stops = answers
        wanted = {"_id": {"$in": list(set(job_ids))}}
        states: list[dict[str, Any]] = [{"status": {"$in": list(WAITING)}}]
        if running:  # a worker of another system has no lease, and would not look
            held = {"leaseUntil": {"$exists": True}, "proceeded": {"$exists": False}}
            states.append({"status": _PROCESSING, **held})
        waits = {"$in": ["$status", list(WAITING)]}
        # `$min` ignores a deadline that is missing.
        marking: list[Document] = [
            {
                "$set": {
                    "withdrawn": {"$cond": [waits, ends, stops]},
                    "deadline": {"$min": ["$deadline", now]},
                    "updatedAt": now,
                }
            },
        ]
        await self.link.run(lambda: entries.update_many(wanted | {"$or": states}, marking))
        marked = wanted | {"withdrawn": {"$in": list(answers)}}
        found = await self.link.run(lambda: entries.find(marked, {"withdrawn": 1}).to_list())
        cancelled = {each["_id"]: answers[each["withdrawn"]] for each in found}
        return [cancelled.get(job_id, Cancelled.TOO_LATE) for job_id in job_ids]

    async def asked_to_stop(self, workload: str, leases: Sequence[Lease]) -> list[Lease]:
        """See :meth:`holdfast.contracts.ports.Ledger.asked_to_stop`."""
        entries = self.collections.of(workload).entries
        held = {"_id": {"$in": [each.job_id for each in leases]}, "status": _PROCESSING}
        found = await self.link.run(
            lambda: entries.find(held | {"withdrawn": {"$exists": True}}, {"fence": 1}).to_list()
        )
        fences = {each["_id"]: each["fence"] for each in found}
        return [each for each in leases if fences.get(each.job_id) == each.fence]


def _has(field: str) -> Document:
    # For MongoDB a missing field is less than null.
    return {"$gt": [f"${field}", None]}


def _overdue(link: Link) -> Document:
    """Past its deadline; or cancelled, even if this server's clock is behind the clock that dated the cancellation."""
    past = {"$and": [_has("deadline"), {"$lte": ["$deadline", link.clock.now()]}]}
    return {"$or": [past, _has("withdrawn")]}


def _is_free(link: Link) -> Document:
    """Waiting, and not delayed any more, or overdue; or in work under an expired lease."""
    now = link.clock.now()
    return {
        "$or": [
            {
                "$and": [
                    {"$in": ["$status", list(WAITING)]},
                    {"$or": [{"$lte": ["$notBefore", now]}, _overdue(link)]},
                ],
            },
            {"$and": [{"$eq": ["$status", _PROCESSING]}, {"$lte": ["$leaseUntil", now]}]},
        ],
    }


def _taking(link: Link, mark: str, worker: str, lease: timedelta, max_attempts: int) -> list[Document]:
    now, until = link.clock.now(), link.clock.now(lease)
    count = {"$size": "$attemptHistory"}
    lost = {**LOST, "finishedAt": now}
    closed = {
        "$concatArrays": [
            {"$slice": ["$attemptHistory", {"$max": [1, {"$subtract": [count, 1]}]}]},
            [{"$mergeObjects": [{"$last": "$attemptHistory"}, lost]}],
        ],
    }
    # $slice accepts no length of 0, so a single attempt is replaced as a whole.
    alone = [{"$mergeObjects": [{"$last": "$attemptHistory"}, lost]}]
    orphaned = {"$eq": [{"$last": "$attemptHistory.outcome"}, _RUNNING]}
    opened = {
        "attempt": {"$add": [count, 1]},
        "outcome": _RUNNING,
        "worker": {"$literal": worker},
        "startedAt": now,
    }
    another = {
        "$and": [{"$lt": [count, max_attempts]}, {"$not": [_overdue(link)]}, {"$not": [_has("proceeded")]}],
    }
    return [
        {
            "$set": {
                "attemptHistory": {
                    "$cond": [
                        orphaned,
                        {"$cond": [{"$eq": [count, 1]}, alone, closed]},
                        "$attemptHistory",
                    ],
                },
            },
        },
        {
            "$set": {
                "attemptHistory": {
                    "$cond": [another, {"$concatArrays": ["$attemptHistory", [opened]]}, "$attemptHistory"],
                },
            },
        },
        {
            "$set": {
                "status": _PROCESSING,
                "attemptCount": count,
                "fence": {"$add": ["$fence", 1]},
                "leaseUntil": until,
                "dueAt": until,
                "updatedAt": now,
                "claimId": mark,
            },
        },
    ]


def _reading(link: Link) -> Document:
    names = (
        "idempotencyKey status generation fence attemptCount body labels firstSeenAt updatedAt deadline leaseUntil "
        "notBefore claimId proceeded withdrawn result"
    )
    return dict.fromkeys(names.split(), 1) | {
        "last": {"$last": "$attemptHistory.outcome"},
        "now": link.clock.now(),
    }


def _result(document: Mapping[str, Any] | None, job_id: str, mark: str, shortest: timedelta) -> ClaimResult:
    if document is None:
        return Unrecorded(job_id)
    status = Status(document["status"])
    if document.get("claimId") == mark and status is Status.PROCESSING:
        return _claimed(document, job_id)
    if status.terminal:
        result = document.get("result")
        return AlreadySettled(job_id, status, json.loads(result) if result else None)
    now: datetime = document["now"]
    # Another system's worker writes `processing` but no lease.
    until = document.get("leaseUntil", now) if status is Status.PROCESSING else document["notBefore"]
    # The entry may have become free between the update and the read, or another transaction holds it.
    return NotNow(job_id, max(until - now, shortest))


def _claimed(document: Mapping[str, Any], job_id: str) -> ClaimResult:
    key, generation, fence = document["idempotencyKey"], document["generation"], document["fence"]
    if document.get("last") == _RUNNING:
        return Claimed(
            job_id,
            key,
            generation,
            fence,
            document["attemptCount"],
            document["body"],
            document["labels"],
            document["firstSeenAt"],
            document.get("deadline"),
        )
    # No attempt was opened. The claim wrote its own time into updatedAt; compared with it, the job is overdue or not.
    attempts, body = document["attemptCount"], document["body"]
    if document.get("proceeded"):
        return Interrupted(job_id, key, generation, fence, attempts, body)
    deadline, cancelled = document.get("deadline"), document.get("withdrawn") is not None
    if cancelled or (deadline is not None and deadline <= document["updatedAt"]):
        return Overdue(job_id, key, generation, fence, body, cancelled)
    return Exhausted(job_id, key, generation, fence, attempts, body)
