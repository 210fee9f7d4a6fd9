"""Cancelling: a waiting job that its sender cancels is overdue at once, and a job in work is asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.contracts.ledger import Cancelled, Lease, Status

from .entries import new_mark
from .link import Collection, Document, Link
from .schema import WAITING


async def cancel(link: Link, entries: Collection, job_ids: Sequence[str], *, running: bool) -> list[Cancelled]:
    """Mark the jobs with the id of this call and their state. So a claim right after it does not change the answer."""
    if not job_ids:
        return []
    mark, now = new_mark(), link.clock.now()
    answers = {mark: Cancelled.ENDS, f"{mark}-stop": Cancelled.STOPS}
    ends, stops = answers
    wanted = {"_id": {"$in": list(set(job_ids))}}
    states: list[dict[str, Any]] = [{"status": {"$in": list(WAITING)}}]
    if running:  # a worker of another system has no lease, and would not look
        held = {"leaseUntil": {"$exists": True}, "proceeded": {"$exists": False}}
        states.append({"status": Status.PROCESSING.value, **held})
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
    await link.run(lambda: entries.update_many(wanted | {"$or": states}, marking))
    marked = wanted | {"withdrawn": {"$in": list(answers)}}
    found = await link.run(lambda: entries.find(marked, {"withdrawn": 1}).to_list())
    cancelled = {each["_id"]: answers[each["withdrawn"]] for each in found}
    return [cancelled.get(job_id, Cancelled.TOO_LATE) for job_id in job_ids]


async def asked_to_stop(link: Link, entries: Collection, leases: Sequence[Lease]) -> list[Lease]:
    """The leases of jobs in work that were cancelled."""
    held = {"_id": {"$in": [each.job_id for each in leases]}, "status": Status.PROCESSING.value}
    found = await link.run(lambda: entries.find(held | {"withdrawn": {"$exists": True}}, {"fence": 1}).to_list())
    fences = {each["_id"]: each["fence"] for each in found}
    return [each for each in leases if fences.get(each.job_id) == each.fence]
