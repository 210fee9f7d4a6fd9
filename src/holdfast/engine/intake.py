"""Intake: a job that was verified and validated before is recorded here, and then published.

Requests share commits: requests that arrive during a commit go into the next commit. No request waits for a timer. A
job is acknowledged when the *ledger* has it (I1). If the queue is away, the answer has ``queued: false``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

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
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.tenants import Sender
from holdfast.contracts.transitions import Publish
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, emit_failure, events, refused

from .entries import queue_job
from .fairness import fairness_key_of, with_places
from .group_commit import GroupCommit
from .hooks import Hooks
from .sender_limits import SenderLimits

_MOST_IN_ONE_COMMIT: Final = 256
_PATIENCE: Final = timedelta(seconds=1)
_SKIP: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to the sender. For a duplicate, the facts are those of the existing job."""

    recorded_as: RecordedAs
    key: str
    job_id: str
    labels: Mapping[str, str]
    received_at: datetime
    queued: bool

    @property
    def duplicate(self) -> bool:
        """Whether the same job had been accepted before."""
        return self.recorded_as is RecordedAs.DUPLICATE


@dataclass(slots=True)
class _Request:
    workload: Workload[Any]
    entry: NewEntry
    answer: asyncio.Future[Receipt]


class Intake:
    """Accepts jobs. Each process has one; any number of processes may share a store (I2)."""

    def __init__(
        self, store: Store, broker: Broker, *, max_pending: int = 5000, limits: SenderLimits | None = None
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
    ) -> Receipt:
        """Record a job and publish it; return when the ledger's commit is durable.

        ``effects`` are committed with the job if it is new, after the workload's own effects. The job counts against
        the limits of ``sender``; a job without a sender is the operator's own. Raises :class:`StoreUnavailable`,
        :class:`IntakeSaturated` or :class:`SenderLimitReached`; the sender should then send the job again.
        """
        if sender is None or self._limits is None:
            return await self._accept(workload, data, priority, delay, effects)
        await self._limits.count_job(sender)
        with self._limits.pending(sender):
            return await self._accept(workload, data, priority, delay, effects)

    async def _accept(
        self, workload: Workload[Any], data: BaseModel, priority: int, delay: timedelta, effects: Sequence[Effect]
    ) -> Receipt:
        entry = new_entry(
            workload,
            data,
            priority=priority,
            delay=delay,
            fairness_key=fairness_key_of(workload.fairness_key(data), priority),
            effects=effects,
        )
        entry = Hooks(workload).accepted(entry, data, queued=self._store.publishes)
        if self._pending >= self._max_pending:
            refused("intake_pending")
            raise IntakeSaturated
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending += 1
        self._group_commit.add(_Request(workload, entry, answer))
        try:
            return await answer
        finally:
            self._pending -= 1

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
        except EffectRefused as error:
            if len(batch) > 1:
                for request in batch:
                    await self._commit([request])
                return
            _refuse(batch, error)
            return
        except HoldfastError as error:
            emit(events.STORE_UNAVAILABLE, where="intake", reason=error.message)
            _refuse(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - after any error, these senders must get an answer
            if len(batch) > 1:  # one job may be at fault: the others must not fail with it
                for request in batch:
                    await self._commit([request])
                return
            emit_failure(events.STORE_UNAVAILABLE, error, where="intake")
            _refuse(batch, StoreUnavailable(f"The ledger could not record the job: {type(error).__name__}"))
            return
        crash_point("intake.recorded")
        if any(_wants_publishing(request, answer) for request, answer in zip(batch, recorded, strict=True)):
            # The next commit starts while this one's jobs are published.
            self._spawn(self._publish(batch, recorded))
        else:
            _answer_all(batch, recorded)

    async def _publish(self, batch: Sequence[_Request], recorded: Sequence[Recorded]) -> None:
        by_queue: dict[str, list[tuple[_Request, Recorded]]] = {}
        for request, answer in zip(batch, recorded, strict=True):
            if _wants_publishing(request, answer):
                by_queue.setdefault(request.workload.queue, []).append((request, answer))
        unreachable = set()
        for queue, pairs in by_queue.items():
            if not await self._try_publish(queue, [_job(request, answer) for request, answer in pairs]):
                unreachable.add(queue)
        _answer_all(batch, recorded, unreachable)
        await self._apply_enqueued(
            request
            for queue, pairs in by_queue.items()
            if queue not in unreachable
            for request, answer in pairs
            if answer.recorded_as is RecordedAs.NEW
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


def _wants_publishing(request: _Request, answer: Recorded) -> bool:
    """New jobs; and duplicates of a job that no worker has claimed, in case it was lost before it was published."""
    if answer.recorded_as is RecordedAs.NEW:
        return not answer.queued
    return answer.recorded_as is RecordedAs.DUPLICATE and answer.status is Status.RECEIVED and not request.entry.delay


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


def _answer_all(
    batch: Sequence[_Request],
    recorded: Sequence[Recorded],
    unreachable: Collection[str] = (),
) -> None:
    crash_point("intake.published")
    for request, answer in zip(batch, recorded, strict=True):
        _answer(request, answer, queued=request.workload.queue not in unreachable)


def _answer(request: _Request, recorded: Recorded, *, queued: bool) -> None:
    if request.answer.done():  # the sender closed the connection; the job stays accepted
        return
    receipt = Receipt(
        recorded.recorded_as,
        request.entry.key,
        recorded.job_id,
        recorded.labels,
        recorded.first_seen_at,
        queued,
    )
    request.answer.set_result(receipt)
    emit(
        events.JOB_ACCEPTED,
        workload=request.workload.name,
        key=request.entry.key,
        recorded_as=recorded.recorded_as.value,
        queued=queued,
    )


def _refuse(batch: Sequence[_Request], error: Exception) -> None:
    for request in batch:
        if not request.answer.done():
            request.answer.set_exception(error)
