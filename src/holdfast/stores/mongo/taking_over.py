"""Taking over: a job comes whose key another system has recorded (:mod:`.foreign`).

What that system has settled is brought over as it stands: the job is a duplicate. What it has not settled becomes an
entry of ours, with the body that the job brings and the attempts that were made, where nobody else can be working on
it: the queue gave us the job, or the other system has not begun. That system's record goes in the same transaction.
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
    records: WorkloadCollections,
    coming: Sequence[tuple[NewEntry, str]],
    now: datetime,
    grace: timedelta,
) -> dict[str, Document]:
    """What stands under these keys from now on; an entry that is ours alone has the mark that came with it.

    A key that is missing in the answer belongs to a job whose id another key has.
    """
    by_key = {entry.key: (entry, mark) for entry, mark in coming}
    found = await _found(session, records, list(by_key))
    settled = [key for key, each in found.items() if is_foreign(each) and _status(records, each).terminal]
    if settled:
        await import_keys(session, records=records, keys=settled)
        found |= await _found(session, records, settled)
    free = [key for key in by_key if key not in found or _may_be_taken(records, found[key], by_key[key][0])]
    last = await _last_generations(session, records, free)
    ids = await _taken_ids(session, records, [by_key[key][0].job_id for key in free])
    for key in free:
        (entry, mark), before = by_key[key], found.pop(key, None)
        if entry.job_id in ids:
            continue
        document = new_document(records.workload, entry, now, grace, mark) | {"generation": last.get(key, 0) + 1}
        if before is not None:
            document |= _begun(records, before)
            if not entry.delivered:  # for its sender, the other system has accepted it
                document["recordId"] += ".known"
            await records.entries.delete_one({"_id": before["_id"]}, session=session)
        await records.entries.insert_one(document, session=session)
        ids.add(entry.job_id)
        found[key] = document
    return {
        key: entry_in_our_shape(records.workload, each) if is_foreign(each) else each for key, each in found.items()
    }


def _begun(records: WorkloadCollections, found: Mapping[str, Any]) -> Document:
    """What the other system has done about the job so far."""
    before = entry_in_our_shape(records.workload, found)
    attempts = attempts_before(before)
    return {
        "status": (Status.FAILED if attempts else Status.RECEIVED).value,
        "attemptHistory": attempts,
        "attemptCount": len(attempts),
        **{name: before[name] for name in ("firstSeenAt", "lastErrorCode", "lastErrorMessage")},
    }


def _may_be_taken(records: WorkloadCollections, found: Mapping[str, Any], entry: NewEntry) -> bool:
    return is_foreign(found) and (entry.delivered or _status(records, found) is Status.RECEIVED)


def _status(records: WorkloadCollections, found: Mapping[str, Any]) -> Status:
    return Status(entry_in_our_shape(records.workload, found)["status"])


async def _found(session: Session, records: WorkloadCollections, keys: Sequence[str]) -> dict[str, Document]:
    found = await records.entries.find({"idempotencyKey": {"$in": list(keys)}}, session=session).to_list()
    return {each["idempotencyKey"]: each for each in found}


async def _taken_ids(session: Session, records: WorkloadCollections, job_ids: Sequence[str]) -> set[str]:
    found = await records.entries.find({"_id": {"$in": list(job_ids)}}, {"_id": 1}, session=session).to_list()
    return {each["_id"] for each in found}


async def _last_generations(session: Session, records: WorkloadCollections, keys: Sequence[str]) -> dict[str, int]:
    """How many dead letters each key has had: its next one must differ from them (I8)."""
    fields = {"idempotencyKey": 1, "generation": 1}
    letters = await records.letters.find({"idempotencyKey": {"$in": list(keys)}}, fields, session=session).to_list()
    last: dict[str, int] = {}
    for each in letters:
        if not is_foreign_letter(each):
            last[each["idempotencyKey"]] = max(last.get(each["idempotencyKey"], 0), each["generation"])
    for each in letters:
        if is_foreign_letter(each):  # it will get the next free one
            last[each["idempotencyKey"]] = last.get(each["idempotencyKey"], 0) + 1
    return last
