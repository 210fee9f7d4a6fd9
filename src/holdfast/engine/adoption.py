"""Adoption: a job that an external producer put into the queue gets a ledger entry before its first claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.admission import InvalidContent
from holdfast.contracts.entries import new_entry, usable_job_id
from holdfast.contracts.errors import BrokerUnavailable, NewerVersion, StoreUnavailable
from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs, Status
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queues import Delivery
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import describe_validation
from holdfast.contracts.workload import VERSION_FIELD, Workload
from holdfast.telemetry import emit, events

from .entries import queue_job, refused_entry
from .hooks import Hooks, report_failure

IDEMPOTENCY_CONFLICT: Final = "IDEMPOTENCY_CONFLICT"
UNREADABLE: Final = "UNREADABLE"

_CONFLICT: Final = "Another job with the same key and other content was accepted before."
_NOT_STORED: Final = "The job holds something that cannot be stored."
_NO_IDENTITY: Final = "The job's identity cannot be used."

_LONGEST_JOB: Final = 4 * 1024 * 1024
_SHOWN_PART: Final = 64 * 1024


async def adopt(store: Store, workload: Workload[Any], deliveries: Sequence[Delivery]) -> list[str]:
    """Record the jobs; return, for each delivery, the job id to claim.

    A job whose key and content are known already has the job id of the existing entry. A job that breaks the contract,
    or conflicts with an existing entry, is recorded as refused. Its first claim makes it a dead letter, so that no job
    is lost silently.
    """
    return [answer.job_id for _, answer in await _recorded(store, workload, deliveries)]


def of_newer_version(workload: Workload[Any], delivery: Delivery) -> bool:
    """Whether a newer version of the program wrote this job. It waits in the queue for a worker that can read it."""
    if f'"{VERSION_FIELD}"' not in delivery.data:
        return False
    try:
        workload.read(delivery.data)
    except NewerVersion as error:
        emit(events.JOB_NEWER, workload=workload.name, job_id=delivery.job_id, reason=error.message)
        return True
    except Exception:  # noqa: BLE001 - the body is at fault, or the workload's code: adopting it says more
        return False
    return False


async def adopt_texts(store: Store, broker: Broker, workload: Workload[Any], texts: Sequence[str]) -> None:
    """Record jobs that did not come through the queue, and publish them.

    See :data:`holdfast.contracts.workload.Adopt`. If the queue is away, maintenance publishes the jobs later.
    """
    deliveries = [Delivery(workload.queue, "", text, "") for text in texts]
    recorded = await _recorded(store, workload, deliveries)
    jobs = [
        queue_job(workload, answer.job_id, entry.body, attempt=1)
        for entry, answer in recorded
        if answer.status is Status.RECEIVED and not answer.queued
    ]
    try:
        await broker.publish(workload.queue, jobs)
    except BrokerUnavailable as error:
        emit(events.QUEUE_UNAVAILABLE, where="adoption", queue=workload.queue, reason=error.message)


async def _recorded(
    store: Store,
    workload: Workload[Any],
    deliveries: Sequence[Delivery],
) -> list[tuple[NewEntry, Recorded]]:
    """For each delivery, its new entry and the ledger's answer."""
    read = [_read(workload, delivery) for delivery in deliveries]
    entries = [
        replace(each if isinstance(each, NewEntry) else each.entry(workload, own_key=True), delivered=True)
        for each in read
    ]
    try:
        pairs = list(zip(entries, await store.record(entries), strict=True))
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001 - one job may hold what no store can keep: it must not stop the others
        if len(deliveries) > 1:
            return [pair for each in deliveries for pair in await _recorded(store, workload, [each])]
        entries = [_Refused(deliveries[0].data, UNREADABLE, _NOT_STORED).entry(workload, own_key=True)]
        pairs = list(zip(entries, await store.record(entries), strict=True))
    for entry, answer in pairs:
        if answer.recorded_as is not RecordedAs.DUPLICATE:
            emit(
                events.JOB_ADOPTED,
                workload=workload.name,
                key=entry.key,
                recorded_as=answer.recorded_as.value,
                warnings=list(entry.warnings),
            )
    conflicts = [position for position, (_, answer) in enumerate(pairs) if answer.recorded_as is RecordedAs.CONFLICT]
    if conflicts:
        refused = []
        for position in conflicts:
            # The key belongs to another job, so the key of this job is made of its content.
            each = read[position]
            conflict = _Refused(deliveries[position].data, IDEMPOTENCY_CONFLICT, _CONFLICT)
            refused.append((conflict if isinstance(each, NewEntry) else each).entry(workload, own_key=False))
        for position, entry, answer in zip(conflicts, refused, await store.record(refused), strict=True):
            pairs[position] = (entry, answer)
    return pairs


@dataclass(frozen=True, slots=True)
class _Refused:
    """A job that cannot be accepted: its data, the code of the problem, and a sentence about it."""

    data: str
    code: str
    reason: str

    def entry(self, workload: Workload[Any], *, own_key: bool) -> NewEntry:
        return refused_entry(workload, self.data, self.code, self.reason, own_key=own_key)


def _read(workload: Workload[Any], delivery: Delivery) -> NewEntry | _Refused:
    if len(delivery.data) > _LONGEST_JOB:  # a store may not be able to keep it, and a person would not read it
        shown = f"{delivery.data[:_SHOWN_PART]} [... {len(delivery.data)} characters]"
        return _Refused(shown, UNREADABLE, f"The job is longer than {_LONGEST_JOB} characters.")
    try:
        adopted = workload.adopt(delivery)
        job_id = adopted.job_id or (delivery.job_id if usable_job_id(delivery.job_id) else None)
        first = workload.at_attempt(adopted.data, 1)
        entry = new_entry(
            workload,
            first,
            job_id=job_id,
            warnings=[scrub(each) for each in adopted.warnings],
        )
        entry = Hooks(workload).accepted(entry, first, queued=True)
        return entry if adopted.fingerprint is None else replace(entry, fingerprint=adopted.fingerprint)
    except ValidationError as error:
        reason = describe_validation(error)
    except InvalidContent as error:
        reason = "; ".join(f"{each.field}: {each.problem}" for each in error.problems)
    except Exception as error:  # noqa: BLE001 - a workload's own code
        report_failure(workload, "adopt", error)
        reason = _NO_IDENTITY
    return _Refused(delivery.data, UNREADABLE, reason)
