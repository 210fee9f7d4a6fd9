"""Redacting: replacing the body of a settled job, so that a person's data is gone and the job is still known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pymongo import UpdateMany, UpdateOne

from holdfast.contracts.ledger import Status

from .entries import snapshot
from .link import Link, Session
from .workload_collections import WorkloadCollections

_SETTLED: Final = [status.value for status in Status if status.terminal]
_BATCH: Final = 500
"""Jobs in one transaction: a person may have very many jobs."""


async def redact(link: Link, collections: WorkloadCollections, bodies: Mapping[str, str]) -> list[str]:
    """Change the settled entries and their letters; return their job ids, in the order of ``bodies``."""
    job_ids = list(bodies)
    done: set[str] = set()
    for start in range(0, len(job_ids), _BATCH):
        batch = job_ids[start : start + _BATCH]
        done |= await link.transaction(lambda session, batch=batch: _redact(session, collections, batch, bodies))  # type: ignore[misc]
    return [job_id for job_id in job_ids if job_id in done]


async def _redact(
    session: Session, collections: WorkloadCollections, job_ids: Sequence[str], bodies: Mapping[str, str]
) -> set[str]:
    """One try at a batch. A replay meanwhile is a conflict, and the batch is tried again."""
    settled = {"_id": {"$in": list(job_ids)}, "status": {"$in": _SETTLED}}
    found = await collections.entries.find(settled, {"idempotencyKey": 1}, session=session).to_list()
    if not found:
        return set()
    entries = [UpdateOne({"_id": each["_id"]}, {"$set": {"body": bodies[each["_id"]]}}) for each in found]
    await collections.entries.bulk_write(entries, ordered=False, session=session)
    letters = []
    for each in found:
        body = bodies[each["_id"]]
        # By the key, because it has an index. A letter is never kept longer than the entry of its key.
        same_key = {"idempotencyKey": each["idempotencyKey"]}
        letters.append(UpdateMany(same_key, {"$set": {"body": body, "payloadSnapshot": snapshot(body)}}))
    await collections.letters.bulk_write(letters, ordered=False, session=session)
    return {each["_id"] for each in found}
