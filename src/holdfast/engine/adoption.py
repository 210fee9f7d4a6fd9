"""Adoption: a job that somebody put straight into the queue gets a ledger entry before its first claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.entries import new_entry
from holdfast.contracts.ledger import NewEntry, RecordVerdict
from holdfast.contracts.ports import Store
from holdfast.contracts.queues import Delivery, usable_job_id
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .entries import refused_entry
from .failures import describe_validation
from .readers import Readers

IDEMPOTENCY_CONFLICT: Final = "IDEMPOTENCY_CONFLICT"
UNREADABLE: Final = "UNREADABLE"

_CONFLICT: Final = "Another job with the same key and other content was accepted before."
_NO_IDENTITY: Final = "The job's identity cannot be used."

_MOST: Final = 4 * 1024 * 1024
_SHOWN: Final = 64 * 1024


def identifies(delivery: Delivery) -> bool:
    """Whether the delivery's id can name a ledger entry.

    Ids that the queue counted up by itself cannot: after a queue was lost they begin again, for other jobs.
    """
    return usable_job_id(delivery.job_id)


async def adopt(store: Store, workload: Workload[Any], deliveries: Sequence[Delivery]) -> list[str]:
    """Record the jobs; return, for each delivery, the job id to claim it by.

    One whose key and content are known already is claimed by the id of the entry that stands. One that breaks the
    contract, or that conflicts with what stands, is recorded under a name of its own, and its first claim buries it:
    nothing is lost in silence.
    """
    entries = [_entry(workload, delivery) for delivery in deliveries]
    recorded = await store.record(entries)
    job_ids = [answer.job_id for answer in recorded]
    conflicts = [position for position, answer in enumerate(recorded) if answer.verdict is RecordVerdict.CONFLICT]
    if conflicts:
        refused = [
            refused_entry(workload, deliveries[position].data, IDEMPOTENCY_CONFLICT, _CONFLICT)
            for position in conflicts
        ]
        for position, answer in zip(conflicts, await store.record(refused), strict=True):
            job_ids[position] = answer.job_id
    for entry, answer in zip(entries, recorded, strict=True):
        if answer.verdict is not RecordVerdict.DUPLICATE:
            emit(events.JOB_ADOPTED, workload=workload.name, key=entry.key, verdict=answer.verdict.value)
    return job_ids


def _entry(workload: Workload[Any], delivery: Delivery) -> NewEntry:
    if len(delivery.data) > _MOST:  # a store may not be able to hold it, and a person would not read it
        shown = f"{delivery.data[:_SHOWN]} [... {len(delivery.data)} characters]"
        return refused_entry(workload, shown, UNREADABLE, f"The job is longer than {_MOST} characters.")
    try:
        data = workload.contract.model_validate_json(delivery.data)
        job_id = delivery.job_id if identifies(delivery) else None
        first = workload.at_attempt(data, 1)
        return new_entry(workload, first, job_id=job_id, effects=Readers(workload).accepted(first, queued=True))
    except ValidationError as error:
        because = describe_validation(error)
    except Exception:  # noqa: BLE001 - whatever a stranger's data does to the contract or the workload's code
        because = _NO_IDENTITY
    return refused_entry(workload, delivery.data, UNREADABLE, because)
