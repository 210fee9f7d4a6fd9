"""What handlers get from the engine: one context for each job, and what the jobs of a process share beneath.

The point of no return is committed before a handler does something irreversible (I11). Handlers share commits: calls
that arrive during a commit go into the next commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.effects import Effect, Enqueue
from holdfast.contracts.entries import new_entry, owner_of
from holdfast.contracts.errors import DeadlinePassed, LeaseLost, StoreUnavailable
from holdfast.contracts.functions import JobFunction
from holdfast.contracts.jobs import Data, Job
from holdfast.contracts.ledger import Lease
from holdfast.contracts.outcomes import Done, Outcome
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.queues import RateLimit
from holdfast.contracts.queues import rate as rate_of
from holdfast.contracts.times import Duration, duration, isoformat
from holdfast.contracts.tracing import passed_on
from holdfast.contracts.transitions import OVERDUE, Proceed, Settled, Settlement
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .group_commit import GroupCommit
from .limiter import Limiter
from .transitions import RunningJob

_MOST_IN_ONE_COMMIT: Final = 100
_REPORT_EVERY: Final = timedelta(milliseconds=500)
_LONGEST_NOTE: Final = 500


@dataclass(slots=True)
class _Request:
    settlement: Settlement
    answer: asyncio.Future[Settled]


class Proceeding:
    """Commits the points of no return of one workload, in one process."""

    def __init__(self, workload: str, store: Store) -> None:
        self._workload = workload
        self._store = store
        self._group_commit = GroupCommit(_MOST_IN_ONE_COMMIT, self._commit)

    async def proceed(self, lease: Lease, effects: Sequence[Effect], *, repeatable: bool) -> None:
        """Return once the mark is committed. Raises the errors of :meth:`Context.proceed` and those of the store."""
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        transition = Proceed(tuple(effects), repeatable)
        self._group_commit.add(_Request(Settlement(self._workload, lease, transition), answer))
        settled = await answer
        if settled.stale:
            raise LeaseLost
        if settled.note == OVERDUE:
            raise DeadlinePassed
        crash_point("worker.proceeded")

    async def _commit(self, batch: Sequence[_Request]) -> None:
        crash_point("worker.proceeding")
        try:
            settled = await self._store.settle([each.settlement for each in batch])
        except Exception as error:  # noqa: BLE001 - raised in the handlers that wait
            if len(batch) > 1 and not _away(error):  # one job may be at fault, or its records may be locked
                for each in batch:
                    await self._commit([each])
                return
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, answer in zip(batch, settled, strict=True):
            if not each.answer.done():  # its handler was cancelled: the mark stays, and nothing was done
                each.answer.set_result(answer)


def _away(error: Exception) -> bool:
    """Whether the store itself failed, for all jobs alike."""
    return type(error) is StoreUnavailable


class Reporting:
    """Writes how far the jobs of one workload are: once for all jobs, every half second while there is news."""

    def __init__(self, workload: str, store: Store, ambient: Ambient) -> None:
        self._workload = workload
        self._store = store
        self._clock = ambient.clock
        self._news: dict[str, tuple[Lease, Mapping[str, Any]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Remember the loop: a handler in a thread reports, too."""
        self._loop = asyncio.get_running_loop()

    def report(self, lease: Lease, done: float, total: float | None, note: str | None) -> None:
        """Remember how far the job is. Safe to call from any thread."""
        short = None if note is None else note[:_LONGEST_NOTE]
        at = isoformat(self._clock.now())
        self._news[lease.job_id] = (lease, {"done": done, "total": total, "note": short, "at": at})
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_soon())

    async def _write_soon(self) -> None:
        while self._news:
            await self.flush()
            await asyncio.sleep(_REPORT_EVERY.total_seconds())

    async def flush(self, job_id: str | None = None) -> None:
        """Write the news, or that of one job. If the store is away, the next report follows soon enough."""
        ids = [each for each in ([job_id] if job_id is not None else list(self._news)) if each in self._news]
        news = [self._news.pop(each) for each in ids]
        if not news:
            return
        try:
            await self._store.note_progress(self._workload, news)
        except Exception as error:  # noqa: BLE001 - people see an older number; the job goes on
            emit(events.STORE_UNAVAILABLE, where="progress", reason=f"{type(error).__name__}: {error}")

    async def stop(self) -> None:
        """Write no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class SharedContext:
    """What the jobs of one workload share in one process.

    ``running`` are the jobs that this process has claimed and not yet settled, by their job ids.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what handlers may use
        self, workload: str, store: Store, broker: Broker, ambient: Ambient, worker: str, hold: timedelta
    ) -> None:
        self.workload = workload
        self.store = store
        self.broker = broker
        self.worker = worker
        self.proceeding = Proceeding(workload, store)
        self.limiter = Limiter(broker, hold)
        self.reporting = Reporting(workload, store, ambient)
        self.running: dict[str, RunningJob] = {}

    async def look_for_cancellations(self, jobs: Sequence[RunningJob]) -> None:
        """Tell the handlers of these jobs which of them were cancelled."""
        asked = set(await self.store.asked_to_stop(self.workload, [each.lease for each in jobs]))
        for each in jobs:
            if each.lease in asked:
                each.cancelled.set()

    async def settle(self) -> None:
        """Return when every permit of the handlers is released."""
        await self.limiter.settle()
        await self.reporting.stop()


class JobContext:
    """What the engine offers to the handler of one job; implements :class:`holdfast.contracts.jobs.Context`."""

    __slots__ = ("_effects", "_job", "_running", "_shared", "reported")

    def __init__(self, shared: SharedContext, running: RunningJob, job: Job[Any]) -> None:
        self._shared = shared
        self._running = running
        self._job = job
        self._effects: list[Effect] = []
        self.reported = False

    @property
    def job(self) -> Job[Any]:
        """The job."""
        return self._job

    @property
    def running(self) -> RunningJob:
        """For the engine: the state of the work."""
        return self._running

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        return self._shared.worker

    @property
    def cancelled(self) -> bool:
        """Whether the job's sender has cancelled it."""
        return self._running.cancelled.is_set()

    async def until_cancelled(self) -> None:
        """Return when the job's sender cancels it."""
        await self._running.cancelled.wait()

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """Read a record."""
        return await self._shared.store.get(collection, key)

    def write(self, *effects: Effect) -> None:
        """Commit these effects together with the end of the job."""
        self._effects += effects

    def submit(
        self, job: JobFunction[Data, Any] | Workload[Data], data: Data, *, delay: Duration = 0.0, priority: int = 0
    ) -> None:
        """Submit a job in the commit that ends this job."""
        workload = job.workload if isinstance(job, JobFunction) else job
        if not isinstance(data, workload.contract):
            message = f"{workload.name} takes {workload.contract.__name__}, not {type(data).__name__}."
            raise TypeError(message)
        entry = new_entry(
            workload,
            data,
            priority=priority,
            delay=duration(delay),
            owner=owner_of(self._job.key, self._job.labels),
            labels=passed_on(self._job.labels),
        )
        self._effects.append(Enqueue(entry))

    async def proceed(self, effects: Sequence[Effect] = (), *, repeatable: bool = False) -> None:
        """Pass the point of no return."""
        running = self._running
        if self._shared.running.get(self._job.job_id) is not running:
            raise LeaseLost
        try:
            await self._shared.proceeding.proceed(running.lease, effects, repeatable=repeatable)
        except DeadlinePassed:
            await self._shared.look_for_cancellations([running])  # a cancelled job is past its deadline, too
            raise
        running.proceeded = not repeatable

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the job is."""
        self.reported = True
        self._shared.reporting.report(self._running.lease, done, total, note)

    def log(self, message: str, **facts: Any) -> None:  # noqa: ANN401 - a log line has facts of any kind
        """Write one line."""
        emit(message, **{"workload": self._shared.workload, **facts})

    def limit(self, name: str, rate: RateLimit | str) -> AbstractAsyncContextManager[None]:
        """Wait for a permit, and keep it in the body."""
        return self._shared.limiter.limit(name, rate_of(rate))

    async def reserve(self, name: str, rate: RateLimit | str) -> timedelta:
        """The wait until the job's place in an even flow."""
        place = f"{self._shared.workload}/{self._job.job_id}"  # other workloads may have a job of this id
        (wait,) = await self._shared.broker.reserve(name, rate_of(rate), [place])
        return wait

    def end(self, outcome: Outcome) -> Outcome:
        """For the engine: the outcome, with what the handler wrote and submitted if the job is done."""
        if self._effects and isinstance(outcome, Done):
            return replace(outcome, effects=(*outcome.effects, *self._effects))
        return outcome

    async def flush(self) -> None:
        """For the engine: write the last progress that the handler reported."""
        await self._shared.reporting.flush(self._job.job_id)
