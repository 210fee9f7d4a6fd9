"""Redacting: another body in the place of a settled job's, to forget a person and still know the job."""

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
"""Jobs in one transaction: a person may have had very many."""


async def redact(link: Link, records: WorkloadCollections, bodies: Mapping[str, str]) -> list[str]:
    """Change the entries that are settled and their letters; return their job ids, in the order of ``bodies``."""
    job_ids = list(bodies)
    done: set[str] = set()
    for start in range(0, len(job_ids), _BATCH):
        batch = job_ids[start : start + _BATCH]
        done |= await link.transaction(lambda session, batch=batch: _redact(session, records, batch, bodies))  # type: ignore[misc]
    return [job_id for job_id in job_ids if job_id in done]


async def _redact(
    session: Session, records: WorkloadCollections, job_ids: Sequence[str], bodies: Mapping[str, str]
) -> set[str]:
    """One try at a batch. A replay that comes in between is a conflict, and the batch is looked at again."""
    settled = {"_id": {"$in": list(job_ids)}, "status": {"$in": _SETTLED}}
    found = await records.entries.find(settled, {"idempotencyKey": 1}, session=session).to_list()
    if not found:
        return set()
    entries = [UpdateOne({"_id": each["_id"]}, {"$set": {"body": bodies[each["_id"]]}}) for each in found]
    await records.entries.bulk_write(entries, ordered=False, session=session)
    letters = []
    for each in found:
        body = bodies[each["_id"]]
        # By the key, which an index has; a letter never outlives the entry of its key.
        told = {"idempotencyKey": each["idempotencyKey"]}
        letters.append(UpdateMany(told, {"$set": {"body": body, "payloadSnapshot": snapshot(body)}}))
    await records.letters.bulk_write(letters, ordered=False, session=session)
    return {each["_id"] for each in found}
