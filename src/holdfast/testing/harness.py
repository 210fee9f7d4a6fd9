"""The harness: a whole system inside of a test, without a server, a thread or a wait of its own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast, overload

from pydantic import BaseModel

from holdfast.contracts.app import App
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.errors import HoldfastError, NotFound
from holdfast.contracts.functions import JobFunction
from holdfast.contracts.ledger import Cancelled, LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, LetterQuery, Page
from holdfast.contracts.submissions import Submission
from holdfast.contracts.times import Duration, duration, duration_ms, isoformat
from holdfast.contracts.workload import Workload
from holdfast.embedding.steps import (
    AnyJob,
    accept,
    data_of,
    entry_of,
    error_of,
    for_submitting,
    named,
    tracing,
    wishes_of,
    workload_of,
)
from holdfast.feature import Feature
from holdfast.installed import composed, features_of
from holdfast.sqlite import Database
from holdfast.telemetry.standard_logging import logged
from holdfast.wiring import System, open_system

from .clock import START, MovedClock, ambient_of
from .crashes import WORKED, Crashes
from .instants import next_instant
from .worker import SteppedWorker

if TYPE_CHECKING:
    from .sync import SyncHarness

Data = TypeVar("Data", bound=BaseModel)
Result = TypeVar("Result")

_LIMIT: Final = 10.0
_MOST_STEPS: Final = 100_000
_PAGE: Final = Page(limit=500)


class Stuck(HoldfastError):
    """Work that does not come to an end."""


class Harness:
    """The real engine on a database in memory, and a clock that stands still until the test moves it.

    Nothing runs on its own: jobs are worked in :meth:`settle` and :meth:`advance`. Only the app's own workloads and
    features are there, and no setting comes from the environment or from a file. ``features`` adds a list of
    features, or all that are installed (True). ``settings`` has settings by name. ``start`` is where the clock begins.
    ``limit`` is how many seconds of real time one :meth:`settle` may take.

    Use it as an async context manager. The first call opens it otherwise, and then :meth:`close` must be called.
    """

    def __init__(
        self,
        app: App,
        *,
        features: Literal[True] | Sequence[Feature[Any]] = (),
        settings: Mapping[str, Any] | None = None,
        start: datetime = START,
        limit: float = _LIMIT,
    ) -> None:
        self._app = app
        self._features = _chosen(app, features)
        self._settings = dict(settings or {})
        self._clock = MovedClock(start)
        self._limit = limit
        self._crashes = Crashes()
        self._opened: _Opened | None = None
        self._own: set[tuple[str, str]] = set()

    # --- opening and closing ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
        if error is None:
            self._crashes.check_none_left()

    async def _open(self) -> _Opened:
        if self._opened is None:
            opened = _Opened(self._app, self._features, self._settings, self._clock)
            await opened.open()
            self._opened = opened
        return self._opened

    async def close(self) -> None:
        """Stop what is still in work, without settling it, and forget everything."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not closed."""
        return self._opened is not None

    def sync(self) -> SyncHarness:
        """The same for tests that are not async: ``with Harness(app).sync() as h: ...``."""
        from .sync import SyncHarness  # noqa: PLC0415 - made of this module

        return SyncHarness(self)

    # --- submitting ---------------------------------------------------------------------------------------

    @overload
    async def submit(
        self, job: JobFunction[Data, Result], data: Data, *, delay: Duration | None = None, priority: int = 0
    ) -> Submission[Result]: ...

    @overload
    async def submit(
        self,
        job: Workload[Data] | str,
        data: Data | Mapping[str, Any],
        *,
        delay: Duration | None = None,
        priority: int = 0,
    ) -> Submission[Any]: ...

    async def submit(
        self,
        job: AnyJob,
        data: BaseModel | Mapping[str, Any],
        *,
        delay: Duration | None = None,
        priority: int = 0,
    ) -> Submission[Any]:
        """Record a job, as ``Holdfast.submit`` does. It runs in the next :meth:`settle` or :meth:`advance`."""
        system = (await self._open()).system
        workload = for_submitting(system, job)
        with tracing(None, None):
            accepted = await accept(system, job, data_of(workload, data), wishes_of(delay, priority))
        self._own.add((accepted.workload, accepted.key))
        return accepted

    async def cancel(self, job: Submission[Any] | tuple[AnyJob, str]) -> Cancelled:
        """Cancel a job, as ``Holdfast.cancel`` does. The handler of a job in work learns of it at once."""
        opened = await self._open()
        answer = await opened.system.cancellation.cancel(*named(opened.system, job))
        await opened.worker.look_for_cancellations()
        return answer

    async def replay(self, letter: DeadLetter, *, reason: str = "repaired") -> None:
        """Review a dead letter and replay its job, as a person does. The job runs in the next :meth:`settle`."""
        review = (await self._open()).system.review
        await review.review(letter.id, actor="test", reason=reason)
        await review.replay(letter.id, actor="test", reason=reason)

    # --- time and work ------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The instant on the clock."""
        return self._clock.now()

    async def settle(self) -> None:
        """Work until nothing is due at this instant: jobs, retries, follow-up jobs and maintenance.

        The clock stands still meanwhile. So jobs that wait for a permit of a limit stay in work, and go on when
        :meth:`advance` moves the clock. Raises :class:`Stuck` after ``limit`` seconds of real time, with the jobs that
        are still in work.
        """
        opened = await self._open()
        try:
            async with asyncio.timeout(self._limit) as limit:
                while not await self._crashes.watched(opened.worker):
                    await opened.replace_worker()
        except TimeoutError:
            if not limit.expired():
                raise
            jobs = opened.worker.jobs
            await opened.replace_worker()
            state, named_jobs = ("in work", jobs) if jobs else ("due", await self._due(opened.system))
            message = f"After {self._limit:g} s of real time, these jobs are still {state}: {', '.join(named_jobs)}."
            raise Stuck(message) from None

    async def _due(self, system: System) -> list[str]:
        """The jobs that wait for nothing, for a message."""
        waiting = [
            each
            for workload in system.workloads.values()
            for status in (Status.RECEIVED, Status.FAILED)
            for each in await self.jobs(workload, status=status)
        ]
        return [f"{each.workload} {each.key!r}" for each in waiting if each.not_before <= self.now]

    async def advance(self, by: Duration) -> None:
        """Settle, and move the clock on. It stops at each instant at which something becomes due, and settles there.

        So retries, delays, schedules, deadlines, leases and rate limits happen in their order, and once.
        """
        opened = await self._open()
        until = self._clock.ms() + duration_ms(duration(by))
        await self.settle()
        for _ in range(_MOST_STEPS):
            step = await opened.next_step(until)
            self._clock.move_to(step)
            await opened.worker.time_has_passed()
            await self.settle()
            if step >= until:
                return
        message = f"Something is due so often that the clock has stopped {_MOST_STEPS} times; it shows {self.now}."
        raise Stuck(message)

    async def advance_to(self, instant: datetime) -> None:
        """Settle, and move the clock to this instant, as :meth:`advance` does."""
        if instant < self.now:
            message = f"The clock shows {isoformat(self.now)} and does not go back to {isoformat(instant)}."
            raise ValueError(message)
        await self.advance(instant - self.now)

    def crash(self, point: str = WORKED) -> None:
        """Let the worker vanish when it next passes this point; another worker takes its place.

        Nothing of what the vanished worker had in work is settled. Its leases run out when the clock is moved by 30 s;
        then the attempts are closed as lost, and the jobs are tried again. The default is the moment when a handler has
        returned and nothing is committed. ``worker.claimed`` is before the handler, ``worker.proceeded`` is right
        behind a point of no return, ``worker.settled`` is after the commit. The other points are in
        ``holdfast.contracts.crash_points``; a handler has further points if it calls ``holdfast.crash_point(name)``.
        """
        self._crashes.arm(point)

    # --- looking ------------------------------------------------------------------------------------------

    async def result(self, submission: Submission[Result]) -> Result:
        """The result of a job that has ended. Raises :class:`JobFailed`, :class:`JobExpired` or :class:`JobCancelled`.

        Raises ``TimeoutError`` for a job that has not ended: this call does not work on it.
        """
        system = (await self._open()).system
        entry = await entry_of(system, submission.workload, submission.key)
        if not entry.status.terminal:
            why = f" ({entry.last_error_code}: {entry.last_error_message})" if entry.last_error_code else ""
            message = (
                f"{entry.workload} {entry.key!r} has not ended: it is {entry.status}{why}, and due at "
                f"{isoformat(entry.not_before)}. The clock shows {isoformat(self.now)}: settle() or advance() first."
            )
            raise TimeoutError(message)
        if entry.status is not Status.PROCESSED:
            raise await error_of(system, entry)
        return cast("Result", entry.result) if submission.job is None else submission.job.result_of(entry.result)

    async def job(self, job: Submission[Any] | tuple[AnyJob, str]) -> LedgerEntry:
        """The ledger's entry of a job: its state, its attempts, its progress."""
        system = (await self._open()).system
        workload, key = named(system, job)
        return await entry_of(system, workload.name, key)

    async def jobs(self, job: AnyJob, *, status: Status | None = None) -> list[LedgerEntry]:
        """The entries of all jobs of this kind, oldest first."""
        system = (await self._open()).system
        query = EntryQuery(workload=workload_of(system, job).name, status=status)
        found = await system.store.find(query, _PAGE)
        entries = found.items
        while found.next is not None:
            found = await system.store.find(query, Page(_PAGE.limit, found.next))
            entries += found.items
        return entries[::-1]

    @overload
    async def sent(self, job: JobFunction[Data, Any] | Workload[Data]) -> list[Data]: ...

    @overload
    async def sent(self, job: str) -> list[Any]: ...

    async def sent(self, job: AnyJob) -> list[Any]:
        """The data of the jobs of this kind that handlers and schedules have submitted, oldest first."""
        workload = workload_of((await self._open()).system, job)
        entries = await self.jobs(workload)
        return [workload.read(each.body) for each in entries if (each.workload, each.key) not in self._own]

    async def dead_letters(self, job: Submission[Any] | AnyJob | None = None) -> list[DeadLetter]:
        """All dead letters, oldest first; or those of one job, or of one kind of job."""
        system = (await self._open()).system
        if isinstance(job, Submission):
            query = LetterQuery(workload=job.workload, key=job.key)
        else:
            query = LetterQuery(workload=None if job is None else workload_of(system, job).name)
        found = await system.store.letters(query, _PAGE)
        listed = found.items
        while found.next is not None:
            found = await system.store.letters(query, Page(_PAGE.limit, found.next))
            listed += found.items
        whole = [await system.store.letter(each.id) for each in listed]
        return [each for each in whole if each is not None]

    async def record(self, collection: str, key: str) -> Mapping[str, Any]:
        """A record that effects have written. Raises :class:`NotFound`."""
        found = await (await self._open()).system.store.get(collection, key)
        if found is None:
            message = f"The collection {collection} has no record {key!r}."
            raise NotFound(message)
        return found


class _Opened:
    """An open harness: the system, its database, and the worker that is there now."""

    def __init__(
        self, app: App, features: Sequence[Feature[Any]], settings: Mapping[str, Any], clock: MovedClock
    ) -> None:
        self._app = app
        self._features = features
        self._settings = settings
        self._clock = clock
        self._stack = contextlib.AsyncExitStack()

    async def open(self) -> None:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _open(self) -> None:
        self._stack.enter_context(logged())
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
        settings = composed(self._features)(**{"holdfast_data": Path(folder), **self._settings})
        self.database = Database(None, now=self._clock.ms)
        self.system: System = await self._stack.enter_async_context(
            open_system(settings, self._app, ambient_of(self._clock), database=self.database, features=self._features)
        )
        for workload in self.system.workloads.values():
            await workload.start()
            self._stack.push_async_callback(workload.stop)
        self.worker = SteppedWorker(self.system)

    async def replace_worker(self) -> None:
        """Let the worker vanish, and start another."""
        await self.worker.vanish()
        self.worker = SteppedWorker(self.system)

    async def next_step(self, until: int) -> int:
        """Where the clock has to stop next."""
        waiting = self.worker.in_flight > 0
        if waiting:  # its leases have to be renewed, as a worker does
            until = min(until, self._clock.ms() + duration_ms(self.worker.lease / 3))
        workloads = list(self.system.workloads.values())
        found = await next_instant(self.database, workloads, until, waiting=waiting)
        return until if found is None else found

    async def close(self) -> None:
        await self.worker.vanish()
        await self._stack.aclose()


def _chosen(app: App, features: Literal[True] | Sequence[Feature[Any]]) -> tuple[Feature[Any], ...]:
    return features_of(app) if features is True else (*features, *app.features)
