"""Taking over: a job arrives whose key another system has recorded (:mod:`.foreign`).

If that system has settled the job, its entry is imported, and the job is a duplicate. If not, and if nobody else can be
working on the job, a new entry of ours replaces that system's entry in the same transaction. The new entry has the
body of the arriving job and the attempts that were made. Nobody else can be working on the job if the queue delivered
it to us, or if the other system has not begun it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.contracts.ledger import NewEntry, Status

from .entries import new_document
from .foreign import attempts_before, entry_in_our_shape, is_foreign, is_foreign_letter
from .importing import import_keys
from .link import Document, Session
from .workload_collections import WorkloadCollections


async def take_over(
    session: Session,
    collections: WorkloadCollections,
    coming: Sequence[tuple[NewEntry, str]],
    now: datetime,
    grace: timedelta,
) -> dict[str, Document]:
    """Take over what may be taken; return the entries of these keys. A new entry of ours has the mark of its job.

    A key is missing in the answer when another key has its job id.
    """
    by_key = {entry.key: (entry, mark) for entry, mark in coming}
    found = await _found(session, collections, list(by_key))
    settled = [key for key, each in found.items() if is_foreign(each) and _status(collections, each).terminal]
    if settled:
        await import_keys(session, collections=collections, keys=settled)
        found |= await _found(session, collections, settled)
    free = [key for key in by_key if key not in found or _may_be_taken(collections, found[key], by_key[key][0])]
    last = await _last_generations(session, collections, free)
    ids = await _taken_ids(session, collections, [by_key[key][0].job_id for key in free])
    for key in free:
        (entry, mark), before = by_key[key], found.pop(key, None)
        if entry.job_id in ids:
            continue
        document = new_document(collections.workload, entry, now, grace, mark) | {"generation": last.get(key, 0) + 1}
        if before is not None:
            document |= _progress(collections, before)
            if not entry.delivered:  # the other system has accepted the job, so for its sender it is a duplicate
                document["recordId"] += ".known"
            await collections.entries.delete_one({"_id": before["_id"]}, session=session)
        await collections.entries.insert_one(document, session=session)
        ids.add(entry.job_id)
        found[key] = document
    return {
        key: entry_in_our_shape(collections.workload, each) if is_foreign(each) else each for key, each in found.items()
    }


def _progress(collections: WorkloadCollections, found: Mapping[str, Any]) -> Document:
    """The attempts and errors that the other system has written so far."""
    before = entry_in_our_shape(collections.workload, found)
    attempts = attempts_before(before)
    return {
        "status": (Status.FAILED if attempts else Status.RECEIVED).value,
        "attemptHistory": attempts,
        "attemptCount": len(attempts),
        **{name: before[name] for name in ("firstSeenAt", "lastErrorCode", "lastErrorMessage")},
    }


def _may_be_taken(collections: WorkloadCollections, found: Mapping[str, Any], entry: NewEntry) -> bool:
    return is_foreign(found) and (entry.delivered or _status(collections, found) is Status.RECEIVED)


def _status(collections: WorkloadCollections, found: Mapping[str, Any]) -> Status:
    return Status(entry_in_our_shape(collections.workload, found)["status"])


async def _found(session: Session, collections: WorkloadCollections, keys: Sequence[str]) -> dict[str, Document]:
    found = await collections.entries.find({"idempotencyKey": {"$in": list(keys)}}, session=session).to_list()
    return {each["idempotencyKey"]: each for each in found}


async def _taken_ids(session: Session, collections: WorkloadCollections, job_ids: Sequence[str]) -> set[str]:
    found = await collections.entries.find({"_id": {"$in": list(job_ids)}}, {"_id": 1}, session=session).to_list()
    return {each["_id"] for each in found}


async def _last_generations(session: Session, collections: WorkloadCollections, keys: Sequence[str]) -> dict[str, int]:
    """The last generation of the dead letters of each key: the next letter needs another generation (I8)."""
    fields = {"idempotencyKey": 1, "generation": 1}
    letters = await collections.letters.find({"idempotencyKey": {"$in": list(keys)}}, fields, session=session).to_list()
    last: dict[str, int] = {}
    for each in letters:
        if not is_foreign_letter(each):
            last[each["idempotencyKey"]] = max(last.get(each["idempotencyKey"], 0), each["generation"])
    for each in letters:
        if is_foreign_letter(each):  # its import will give it the next free generation
            last[each["idempotencyKey"]] = last.get(each["idempotencyKey"], 0) + 1
    return last
