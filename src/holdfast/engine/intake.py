"""Intake: a job that was verified and validated before is recorded here, and then published.

Requests share commits: requests that arrive during a commit go into the next commit. No request waits for a timer. A
job is acknowledged when the *ledger* has it (I1). If the queue is away, the answer has ``queued: false``.

Fairness: one tenant's many jobs do not delay another's few. A job's place is its ``priority`` in the queue: a smaller
number goes first. Each fairness key counts its own places. Its next place is behind its own last job, and not before
the place that is being worked on now. So a key with ten thousand jobs and a key with ten jobs take turns, and the jobs
of one key keep their order. The places are estimates from a moment ago. That does no harm: places only decide which job
goes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from pydantic import BaseModel

from holdfast.contracts.admission import DelayTooLong, FieldProblem
from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.effects import Effect
from holdfast.contracts.entries import new_entry
from holdfast.contracts.errors import (
    BrokerUnavailable,
    EffectRefused,
    HoldfastError,
    IntakeSaturated,
    StoreUnavailable,
)
from holdfast.contracts.ledger import NewEntry, Recorded, RecordedAs, Status
from holdfast.contracts.ports import Broker, Ledger, Store
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.tenants import Sender
from holdfast.contracts.tracing import request_labels
from holdfast.contracts.transitions import Publish
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events, refused

from .entries import queue_job
from .group_commit import GroupCommit
from .hooks import Hooks
from .sender_limits import SenderLimits, prefix_of

MAX_PENDING: Final = 5_000
"""Requests of one process that may wait for a commit."""
_MOST_IN_ONE_COMMIT: Final = 256
_PATIENCE: Final = timedelta(seconds=1)
_SKIP: Final = timedelta(seconds=2)

LAST_PLACE: Final = 2**21 - 1
"""The greatest priority of BullMQ. Jobs with this place are worked in the order of arrival."""
_HEAD_START: Final = 10


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to the sender. For a duplicate, the facts are those of the existing job."""

    recorded_as: RecordedAs
    key: str
    job_id: str
    labels: Mapping[str, str]
    received_at: datetime
    queued: bool
    due_at: datetime | None = None
    """When the delay of the job is over; None: the job has no delay, or is a duplicate."""

    @property
    def duplicate(self) -> bool:
        """Whether the same job had been accepted before."""
        return self.recorded_as is RecordedAs.DUPLICATE


class Waiter(Protocol):
    """Who waits for a receipt. A future is one; an answer that needs no task is another."""

    def done(self) -> bool:
        """Whether nobody waits any more. The job stays accepted."""
        ...

    def set_result(self, receipt: Receipt, /) -> None:
        """The ledger has the job."""
        ...

    def set_exception(self, error: Exception, /) -> None:
        """The job was not recorded."""
        ...


@dataclass(slots=True)
class _Request:
    workload: Workload[Any]
    entry: NewEntry
    waiter: Waiter
    sender: Sender | None


class Intake:
    """Accepts jobs. Each process has one; any number of processes may share a store (I2)."""

    def __init__(
        self, store: Store, broker: Broker, *, max_pending: int = MAX_PENDING, limits: SenderLimits | None = None
    ) -> None:
        self._store = store
        self._broker = broker
        self._max_pending = max_pending
        self._limits = limits
        self._pending = 0
        self._group_commit = GroupCommit(_MOST_IN_ONE_COMMIT, self._commit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._skipped_until: dict[str, float] = {}

    async def accept(  # noqa: PLR0913 - a job, how it is queued, and whose it is
        self,
        workload: Workload[Any],
        data: BaseModel,
        *,
        priority: int = 0,
        delay: timedelta = timedelta(0),
        effects: Sequence[Effect] = (),
        sender: Sender | None = None,
        owner: str | None = None,
    ) -> Receipt:
        """Record a job and publish it; return when the ledger's commit is durable.

        ``effects`` are committed with the job if it is new, after the workload's own effects. The job counts against
        the limits of ``sender``; a job without a sender is the operator's own. ``owner`` is the tenant whose job it is:
        see :func:`~holdfast.contracts.entries.new_entry`. The job gets the labels of the request that is being answered
        (:mod:`holdfast.contracts.tracing`). Raises :class:`StoreUnavailable`, :class:`IntakeSaturated` or
        :class:`SenderLimitReached`; the sender should then send the job again. Raises :class:`InvalidContent` if the
        job's identity cannot be used, and :class:`DelayTooLong` if the job would expire before its delay is over.
        """
        if workload.ttl is not None and delay >= workload.ttl:
            raise DelayTooLong([FieldProblem("delayMs", _beyond(workload.ttl))])
        fairness_key = _fairness_key(workload.fairness_key(data), owner, priority)
        entry = new_entry(
            workload,
            data,
            priority=priority,
            delay=delay,
            fairness_key=fairness_key,
            effects=effects,
            owner=owner,
            labels=request_labels.get(),
        )
        entry = Hooks(workload).accepted(entry, data, queued=self._store.publishes)
        if sender is not None and self._limits is not None:
            await self._limits.count_job(sender)
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.begin(workload, entry, receipt, sender=sender)
        return await receipt

    def begin(self, workload: Workload[Any], entry: NewEntry, waiter: Waiter, *, sender: Sender | None = None) -> None:
        """Begin to record and publish an entry; ``waiter`` gets the receipt, or the error, once the commit is over.

        :meth:`accept` without a task, for a workload without hooks and for a sender whose waiting jobs have no limit.
        Raises :class:`IntakeSaturated` or :class:`SenderLimitReached`; then ``waiter`` gets nothing.
        """
        if self._pending >= self._max_pending:
            refused("intake_pending")
            raise IntakeSaturated
        if sender is not None and self._limits is not None:
            self._limits.begin_pending(sender)
        self._pending += 1
        self._group_commit.add(_Request(workload, entry, waiter, sender))

    def _end(self, request: _Request, answer: Receipt | Exception) -> None:
        """Give the answer to who waits for it. The request is not pending any more, whether somebody waits or not."""
        self._pending -= 1
        if request.sender is not None and self._limits is not None:
            self._limits.end_pending(request.sender)
        if request.waiter.done():  # the sender closed the connection; the job stays accepted
            return
        if isinstance(answer, Exception):
            request.waiter.set_exception(answer)
        else:
            request.waiter.set_result(answer)

    async def drain(self) -> None:
        """Wait until everything that was accepted has been committed and published."""
        await self._group_commit.idle()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, batch: Sequence[_Request]) -> None:
        crash_point("intake.before_record")
        try:
            entries = await with_places(self._store, [request.entry for request in batch])
            for request, entry in zip(batch, entries, strict=True):
                request.entry = entry
            recorded = await self._store.record(entries)
        except Exception as error:  # noqa: BLE001 - after any error, these senders must get an answer
            await self._not_recorded(batch, error)
            return
        crash_point("intake.recorded")
        # Publish new jobs; and duplicates of a job that no worker has claimed, in case it was lost before that.
        by_queue: dict[str, list[tuple[_Request, Recorded]]] = {}
        for request, answer in zip(batch, recorded, strict=True):
            new, waits = answer.recorded_as is RecordedAs.NEW, answer.status is Status.RECEIVED
            lost = answer.recorded_as is RecordedAs.DUPLICATE and waits and not request.entry.delay
            if lost or (new and not answer.queued):
                by_queue.setdefault(request.workload.queue, []).append((request, answer))
        if by_queue:
            # The next commit starts while this one's jobs are published.
            self._spawn(self._publish(batch, recorded, by_queue))
        else:
            self._answer(batch, recorded)

    async def _not_recorded(self, batch: Sequence[_Request], error: Exception) -> None:
        """Refuse the jobs. If one job may be at fault, record each alone: the others must not fail with it."""
        refused = isinstance(error, EffectRefused)
        if len(batch) > 1 and (refused or not isinstance(error, HoldfastError)):
            for request in batch:
                await self._commit([request])
            return
        if not isinstance(error, HoldfastError):
            emit_failure(events.STORE_UNAVAILABLE, error, where="intake")
            error = StoreUnavailable(f"The ledger could not record the job: {type(error).__name__}")
        elif not refused:
            emit(events.STORE_UNAVAILABLE, where="intake", reason=error.message)
        for request in batch:
            self._end(request, error)

    async def _publish(
        self,
        batch: Sequence[_Request],
        recorded: Sequence[Recorded],
        by_queue: Mapping[str, Sequence[tuple[_Request, Recorded]]],
    ) -> None:
        unreachable = set()
        for queue, pairs in by_queue.items():
            if not await self._try_publish(queue, [_job(request, answer) for request, answer in pairs]):
                unreachable.add(queue)
        self._answer(batch, recorded, unreachable)
        await self._apply_enqueued(
            request
            for queue, pairs in by_queue.items()
            if queue not in unreachable
            for request, answer in pairs
            if answer.recorded_as is RecordedAs.NEW
        )

    def _answer(
        self, batch: Sequence[_Request], recorded: Sequence[Recorded], unreachable: Collection[str] = ()
    ) -> None:
        crash_point("intake.published")
        for request, each in zip(batch, recorded, strict=True):
            key, queued = request.entry.key, request.workload.queue not in unreachable
            new, delay = each.recorded_as is RecordedAs.NEW, request.entry.delay
            due_at = each.first_seen_at + delay if new and delay else None
            self._end(
                request, Receipt(each.recorded_as, key, each.job_id, each.labels, each.first_seen_at, queued, due_at)
            )
            emit(
                events.JOB_ACCEPTED,
                workload=request.workload.name,
                key=key,
                recorded_as=each.recorded_as.value,
                queued=queued,
            )

    async def _apply_enqueued(self, published: Iterable[_Request]) -> None:
        """Apply the effects of publishing. No sender waits for this, and nothing depends on it."""
        effects = [
            effect
            for each in published
            for effect in Hooks(each.workload).effects_of(Publish(), each.entry.job_id, each.entry.body, generation=1)
        ]
        if not effects:
            return
        try:
            await self._store.apply(effects)
        except Exception as error:  # noqa: BLE001 - the worker's own effects will follow
            emit(events.STORE_UNAVAILABLE, where="intake", reason=f"{type(error).__name__}: {error}")

    async def _try_publish(self, queue: str, jobs: Sequence[QueueJob]) -> bool:
        """Publish, unless the queue is away or too slow; then maintenance publishes later, from the ledger.

        After a timeout the queue is skipped for a while, so that only one request in that time waits for it.
        """
        time = asyncio.get_running_loop().time
        if time() < self._skipped_until.get(queue, 0):
            return False
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await self._broker.publish(queue, jobs)
        except TimeoutError:
            reason = "The queue does not answer."
            self._skipped_until[queue] = time() + _SKIP.total_seconds()
        except BrokerUnavailable as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - after any error, these senders must get an answer
            reason = f"{type(error).__name__}: {error}"
        else:
            return True
        emit(events.QUEUE_UNAVAILABLE, where="intake", queue=queue, reason=reason)
        return False


async def with_places(ledger: Ledger, entries: Sequence[NewEntry]) -> list[NewEntry]:
    """The entries with their places. Entries without a fairness key are left as they are."""
    fairness_keys: dict[str, list[str]] = {}
    for entry in entries:
        if entry.fairness_key is not None and entry.fairness_key not in fairness_keys.setdefault(entry.workload, []):
            fairness_keys[entry.workload].append(entry.fairness_key)
    if not fairness_keys:
        return list(entries)
    places = {workload: await ledger.queue_places(workload, names) for workload, names in fairness_keys.items()}
    ends = {workload: dict(place.ends) for workload, place in places.items()}
    placed = []
    for entry in entries:
        if entry.fairness_key is None:
            placed.append(entry)
            continue
        begin = max(0, places[entry.workload].front - _HEAD_START) + entry.priority
        end = ends[entry.workload].get(entry.fairness_key, -1)
        place = min(max(begin, end + 1), LAST_PLACE)
        ends[entry.workload][entry.fairness_key] = place
        placed.append(replace(entry, priority=place))
    return placed


def _fairness_key(key: str | None, owner: str | None, priority: int) -> str | None:
    """The fairness key of a job: it begins with the tenant whose job it is, so that the tenant's jobs can be counted.

    Jobs of one owner with different priorities have different keys, so that an urgent job passes the others.
    """
    if owner is not None:
        key = owner if key is None else f"{prefix_of(owner)}{key}"
    return None if key is None else f"{prefix_of(key)}{priority}"


def _beyond(ttl: timedelta) -> str:
    milliseconds = ttl // timedelta(milliseconds=1)
    return f"must be less than {milliseconds}: after that time the job expires"


def _job(request: _Request, answer: Recorded) -> QueueJob:
    entry = request.entry
    return queue_job(
        request.workload,
        answer.job_id,
        entry.body,
        attempt=1,
        priority=entry.priority,
        delay=entry.delay,
    )
