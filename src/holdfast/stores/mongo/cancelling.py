"""Cancelling: a waiting job that its sender cancels is overdue at once."""

from __future__ import annotations

from collections.abc import Sequence

from .entries import new_mark
from .link import Collection, Document, Link
from .schema import WAITING


async def cancel(link: Link, entries: Collection, job_ids: Sequence[str]) -> list[bool]:
    """Mark the waiting jobs with the id of this call. So a claim right after it does not change the answer."""
    if not job_ids:
        return []
    mark, now = new_mark(), link.clock.now()
    wanted = {"_id": {"$in": list(set(job_ids))}}
    waiting = wanted | {"status": {"$in": list(WAITING)}}
    # `$min` ignores a deadline that is missing.
    marking: list[Document] = [
        {"$set": {"withdrawn": mark, "deadline": {"$min": ["$deadline", now]}, "updatedAt": now}},
    ]
    await link.run(lambda: entries.update_many(waiting, marking))
    found = await link.run(lambda: entries.find(wanted | {"withdrawn": mark}, {"_id": 1}).to_list())
    cancelled = {each["_id"] for each in found}
    return [job_id in cancelled for job_id in job_ids]
