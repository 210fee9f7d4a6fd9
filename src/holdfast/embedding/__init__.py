"""Holdfast inside of your own program: ``Holdfast(app)`` submits jobs, and works them in the same process.

    async with Holdfast(app, data="holdfast-data") as hold:
        receipt = await hold.submit(issue_invoice, invoice)
        pdf = await hold.result(receipt, timeout=30)

The settings are those of the program ``holdfast``, so both may work on one file or in one cluster at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

from pydantic import BaseModel

from holdfast.config import Settings
from holdfast.contracts.app import App
from holdfast.contracts.functions import JobFunction
from holdfast.contracts.ledger import Cancelled, LedgerEntry, Status
from holdfast.contracts.queries import EntryQuery, Page
from holdfast.contracts.submissions import NotRunning, Submission
from holdfast.contracts.times import Duration, duration
from holdfast.contracts.workload import Workload
from holdfast.wiring import System

from .mounted import MountedApi
from .running import Running, settings_of
from .steps import (
    AnyJob,
    accept,
    data_of,
    entry_of,
    error_of,
    for_submitting,
    named,
    status_of,
    tracing,
    typed_result,
    wishes_of,
    workload_of,
)

__all__ = ["Holdfast"]

Data = TypeVar("Data", bound=BaseModel)
Result = TypeVar("Result")

_AT_ONCE: Final = 500
_ONE_WAIT: Final = timedelta(minutes=1)
"""A wait without a limit is many waits of this length. A job that the ledger does not have ends the wait."""


class Holdfast:
    """The gateway inside of your own process, on the file or in the cluster that the settings name.

    ``data`` is the folder of the ledger and the queue; otherwise HOLDFAST_DATA. ``settings`` has other settings by
    name, and they have priority over the environment and over ``holdfast.toml``. Without a ``worker``, another process
    must work the jobs; without ``maintenance``, another process must run maintenance.

    Use it as an async context manager, or as the lifespan of a FastAPI or Starlette app. At the end of the body, jobs
    in work finish or are released, which costs no attempt (I17); also if the body raises or is cancelled. If the worker
    fails, the calls raise :class:`NotRunning`, and the end of the body raises the error of the worker.

    It may be started again after it has stopped. It belongs to the event loop in which it was started.
    """

    def __init__(
        self,
        app: App,
        *,
        data: str | Path | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        worker: bool = True,
        maintenance: bool = True,
    ) -> None:
        self._app = app
        self._data = data
        self._settings = settings
        self._worker = worker
        self._maintenance = maintenance
        self._running: Running | None = None
        self._mounted: MountedApi | None = None

    # --- starting and stopping ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._running is not None:
            message = "This Holdfast is running already: start it once, or make another one."
            raise RuntimeError(message)
        settings = settings_of(self._app, self._data, self._settings)
        self._running = running = Running(settings, self._app, worker=self._worker, maintenance=self._maintenance)
        try:
            await running.start()
            if self._mounted is not None:
                await self._mounted.open(running)
        except BaseException:
            self._running = None
            with contextlib.suppress(Exception):  # the reason why it did not start is what the caller needs
                await running.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        running = self._running
        if running is None:
            return
        if self._mounted is not None:
            self._mounted.leave()
        try:
            await running.stop()
        finally:
            self._running = None
        if running.failure is not None and error is None:
            raise running.failure

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:
        """For ``FastAPI(lifespan=hold.lifespan)``. In a lifespan of your own, write ``async with hold: ...``."""
        del app
        return self._as_lifespan()

    @contextlib.asynccontextmanager
    async def _as_lifespan(self) -> AsyncIterator[None]:
        async with self:
            yield

    @property
    def asgi(self) -> MountedApi:
        """The HTTP API of ``holdfast up``, to be mounted: ``app.mount("/jobs-api", hold.asgi)``.

        Take it before the start. The API needs the secrets that ``holdfast up`` needs. Before the start and after the
        stop, each request is answered with 503. The limits of connections are those of your own server.
        """
        if self._mounted is None:
            if self._running is not None:
                message = "Take hold.asgi before Holdfast starts: the start makes the API."
                raise RuntimeError(message)
            self._mounted = MountedApi()
        return self._mounted

    @contextlib.contextmanager
    def _call(self) -> Iterator[tuple[Running, System]]:
        running = self._running
        if running is None:
            raise NotRunning
        with running.call() as system:
            yield running, system

    # --- submitting ---------------------------------------------------------------------------------------

    @overload
    async def submit(
        self,
        job: JobFunction[Data, Result],
        data: Data,
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> Submission[Result]: ...

    @overload
    async def submit(
        self,
        job: Workload[Any] | str,
        data: BaseModel | Mapping[str, Any],
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> Submission[Any]: ...

    async def submit(  # noqa: PLR0913 - a job, how it is queued, and where it comes from
        self,
        job: AnyJob,
        data: BaseModel | Mapping[str, Any],
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> Submission[Any]:
        """Record a job and publish it. Returns when the job is on disk: it will not be lost (I1).

        The same job again is a duplicate, with the receipt of the first. ``delay`` is the time before the first
        attempt. A job with a smaller ``priority`` goes first. The job keeps the trace id of ``traceparent`` (W3C), or
        a new one, and the ``request_id``.

        Raises :class:`Conflict` if the key belongs to a job with another content, ``TypeError`` for data of another
        model, :class:`InvalidContent` for a mapping that breaks the contract and for a delay beyond the ttl, and
        :class:`StoreUnavailable` or :class:`IntakeSaturated` if the job cannot be recorded now. It is safe to submit
        the same job again.
        """
        with tracing(request_id, traceparent):
            (submission,) = await self._submit(job, [data], delay, priority)
        return submission

    @overload
    async def submit_many(
        self,
        job: JobFunction[Data, Result],
        items: Iterable[Data],
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> list[Submission[Result]]: ...

    @overload
    async def submit_many(
        self,
        job: Workload[Any] | str,
        items: Iterable[BaseModel | Mapping[str, Any]],
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> list[Submission[Any]]: ...

    async def submit_many(  # noqa: PLR0913 - as ``submit``
        self,
        job: AnyJob,
        items: Iterable[BaseModel | Mapping[str, Any]],
        *,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> list[Submission[Any]]:
        """Submit many jobs, which share commits. Returns their receipts in order.

        All data is checked before the first job is accepted. If a job cannot be accepted, the others are; then the
        first error is raised. It is safe to submit the same jobs again: those that were accepted are duplicates.
        """
        with tracing(request_id, traceparent):
            return await self._submit(job, items, delay, priority)

    async def _submit(
        self,
        job: AnyJob,
        items: Iterable[BaseModel | Mapping[str, Any]],
        delay: Duration | None,
        priority: int,
    ) -> list[Submission[Any]]:
        wishes = wishes_of(delay, priority)
        with self._call() as (_, system):
            workload = for_submitting(system, job)
            datas = [data_of(workload, each) for each in items]
            found: list[Submission[Any] | BaseException] = []
            for first in range(0, len(datas), _AT_ONCE):
                some = datas[first : first + _AT_ONCE]
                accepted = [accept(system, job, each, wishes) for each in some]
                found += await asyncio.gather(*accepted, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return cast("list[Submission[Any]]", found)

    # --- following ----------------------------------------------------------------------------------------

    @overload
    async def result(
        self,
        job: Submission[Result] | tuple[JobFunction[Any, Result], str],
        timeout: Duration | None = None,  # noqa: ASYNC109 - see below
    ) -> Result: ...

    @overload
    async def result(
        self,
        job: tuple[Workload[Any] | str, str],
        timeout: Duration | None = None,  # noqa: ASYNC109 - see below
    ) -> Any: ...  # noqa: ANN401 - no type is known

    async def result(
        self,
        job: Submission[Any] | tuple[AnyJob, str],
        timeout: Duration | None = None,  # noqa: ASYNC109 - all waits share one look at the ledger
    ) -> Any:
        """The result of the job, when the job has ended. The job is named by its receipt, or by job and key.

        Any number of calls may wait: they share one look at the ledger. Raises ``TimeoutError`` if the job has not
        ended within ``timeout``; the job goes on, and this can be called again. Raises :class:`JobFailed`,
        :class:`JobExpired` or :class:`JobCancelled` if the job has no result, and :class:`NotFound`.
        """
        left = None if timeout is None else duration(timeout)
        with self._call() as (running, system):
            workload, key = named(system, job)
            while not await system.waiting.until_ended(workload.name, key, _ONE_WAIT if left is None else left):
                running.check()
                await entry_of(system, workload.name, key)
                if left is not None:
                    message = f"The job {key!r} of {workload.name} has not ended within {timeout}."
                    raise TimeoutError(message)
            entry = await entry_of(system, workload.name, key)
            if entry.status is Status.PROCESSED:
                return typed_result(job, entry)
            raise await error_of(system, entry)

    async def job(self, job: Submission[Any] | tuple[AnyJob, str]) -> LedgerEntry:
        """The ledger's entry of a job: its state, its attempts, its result. Named by its receipt, or by job and key.

        Raises :class:`NotFound`.
        """
        with self._call() as (_, system):
            workload, key = named(system, job)
            return await entry_of(system, workload.name, key)

    async def jobs(  # noqa: PLR0913 - the conditions
        self,
        job: AnyJob,
        *,
        status: Status | str | None = None,
        labels: Mapping[str, str] | None = None,
        key_prefix: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        page: int = 100,
    ) -> AsyncIterator[LedgerEntry]:
        """The jobs that match, newest first. They are read a ``page`` at a time, as the caller goes on.

        The jobs were received at ``after`` or later, and ``before`` that instant. Raises :class:`InvalidQuery` for a
        status that does not exist, and for a label that is not indexed.
        """
        cursor: str | None = None
        while True:
            with self._call() as (_, system):
                query = EntryQuery(
                    workload=workload_of(system, job).name,
                    status=status_of(status),
                    labels=dict(labels or {}),
                    key_prefix=key_prefix,
                    seen_after=after,
                    seen_before=before,
                )
                found = await system.store.find(query, Page(page, cursor))
            for entry in found.items:
                yield entry
            cursor = found.next
            if cursor is None:
                return

    async def cancel(self, job: Submission[Any] | tuple[AnyJob, str]) -> Cancelled:
        """Cancel a job. A job that waits never runs. A job in work is asked to stop, if its workload is ``stoppable``.

        The answer is false if it is too late.
        """
        with self._call() as (_, system):
            workload, key = named(system, job)
            return await system.cancellation.cancel(workload, key)
