"""Jobs of your own workloads: submit, wait for the result, look, cancel, watch; and their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from holdfast.contracts.times import Duration, duration, duration_ms

from .content import Data, as_object, json_bytes, part, query_of
from .errors import Conflict, JobCancelled, JobExpired, JobFailed, Refused, TooManyRequests, Unavailable, Unreachable
from .exchange import Exchange
from .lists import in_batches, pages
from .steps import Emit, Items, Request, Steps, Wait
from .streams import events
from .views import Cancelled, Job, JobState

LONGEST_POLL: Final = 30.0
"""How many seconds one request waits for the end of a job."""
_SHORTEST_POLL: Final = 1.0
_TOO_LATE: Final = "TOO_LATE"
"""A gateway that answers at once, although the job has not ended, is not asked more often than this."""


class Named(Protocol):
    """What has the workload and the key of a job: :class:`Job`, :class:`JobState`."""

    @property
    def workload(self) -> str:
        """The name of the workload."""

    @property
    def key(self) -> str:
        """The idempotency key of the job."""


Reference = Named | tuple[str, str]
"""A job: what :meth:`JobVerbs.submit` or :meth:`JobVerbs.job` returned, or its workload and its key."""


class JobVerbs:
    """The requests of ``/v1/jobs`` and ``/v1/records``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def submit(self, workload: str, data: Data, *, delay: Duration | None = None, priority: int = 0) -> Steps[Job]:
        """Submit a job. When this returns, the job is on disk.

        The workload makes the idempotency key from the data, so a job is never done twice: the same data again gets the
        first receipt, and other data under the same key raises :class:`Conflict`. A smaller ``priority`` goes first.
        """
        request = Request(
            method="POST", path=_jobs(workload), query=_when(delay, priority), body=json_bytes(as_object(data))
        )
        document = yield from self._exchange.json(request)
        return Job.read(document)

    def submit_many(
        self, workload: str, items: Iterable[Data], *, delay: Duration | None = None, priority: int = 0
    ) -> Steps[list[Job | Refused]]:
        """Submit many jobs, 500 in one request. One receipt, or the refusal, for each item, in their order.

        If an error is raised, some of the jobs may have been accepted: it is safe to submit all of them again.
        """
        query = _when(delay, priority)
        objects = [as_object(each) for each in items]
        return in_batches(
            self._exchange,
            objects,
            lambda batch: Request(method="POST", path=_jobs(workload), query=query, body=json_bytes(batch)),
            Job.read,
        )

    def result(self, job: Reference, timeout: Duration | None = None) -> Steps[Any]:
        """Wait for the end of a job, and return its result. A result that is no JSON object is returned as it is.

        Raises :class:`JobFailed`, :class:`JobExpired`, :class:`JobCancelled`, or ``TimeoutError`` when ``timeout`` is
        over; the job goes on then. The gateway is asked every 30 seconds, and answers when the job ends.
        """
        until = self._exchange.deadline(timeout)
        workload, key = _names(job)
        while True:
            began = self._exchange.now
            wait = max(min(LONGEST_POLL, until - began), 0.0)
            state = yield from self._poll(workload, key, wait, until)
            if state is not None and state.ended:
                return _result_of(state)
            now = self._exchange.now
            if state is None or now >= until:
                message = f"{workload} {key} has not ended in time; it goes on."
                raise TimeoutError(message)
            pause = min(began + _SHORTEST_POLL, until) - now
            if pause > 0:
                yield Wait(pause)

    def job(self, workload: str, key: str) -> Steps[JobState]:
        """The state of a job, with its attempts and its result. Raises :class:`NotFound`."""
        document = yield from self._exchange.json(Request(method="GET", path=_job(workload, key)))
        return JobState.read(document)

    def jobs(
        self,
        workload: str,
        *,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        page: int | None = None,
    ) -> Items[JobState]:
        """The jobs of a workload, the newest first. ``page`` is how many one request brings."""
        query = query_of(status=status, key=key, after=after, before=before, limit=page)
        query += [("label", f"{name}={value}") for name, value in (labels or {}).items()]
        return pages(self._exchange, _jobs(workload), query, JobState.read)

    def cancel(self, job: Reference) -> Steps[Cancelled]:
        """Cancel a job. The answer is false if it is too late: the job has ended, or cannot be stopped any more."""
        workload, key = _names(job)
        try:
            document = yield from self._exchange.json(Request(method="POST", path=f"{_job(workload, key)}/cancel"))
        except Conflict as refused:
            if refused.code != _TOO_LATE:
                raise
            return Cancelled(workload=workload, key=key, state="too_late")
        return Cancelled.read(document)

    def events(self, job: Reference, timeout: Duration | None = None) -> Items[JobState]:
        """The state of a job at once, after each change, and at its end. Raises ``TimeoutError``."""
        until = self._exchange.deadline(timeout)
        for step in events(self._exchange, f"{_job(*_names(job))}/events", until=until):
            yield Emit(JobState.read(step.item)) if isinstance(step, Emit) else step

    def records(
        self, collection: str, *, where: Mapping[str, str] | None = None, page: int | None = None
    ) -> Items[Mapping[str, Any]]:
        """The records of a collection. Needs the operator token."""
        query = query_of(limit=page) + [("where", f"{name}={value}") for name, value in (where or {}).items()]
        return pages(self._exchange, f"/v1/records/{part(collection)}", query, _record, operator=True)

    def record(self, collection: str, key: str) -> Steps[Mapping[str, Any]]:
        """One record of a collection. Needs the operator token. Raises :class:`NotFound`."""
        path = f"/v1/records/{part(collection)}/{part(key)}"
        document = yield from self._exchange.json(Request(method="GET", path=path, operator=True))
        return _record(document)

    def _poll(self, workload: str, key: str, wait: float, until: float) -> Steps[JobState | None]:
        """The state of a job when it has ended, or after ``wait``. None: no answer came before ``until``."""
        query = [("wait", f"{wait:.3f}".rstrip("0").rstrip("."))]
        request = Request(method="GET", path=_job(workload, key), query=query, patience=wait)
        try:
            document = yield from self._exchange.json(request, until=until)
        except TooManyRequests:
            # Too many requests of this tenant wait already. A look that does not wait is always possible.
            return (yield from self.job(workload, key))
        except (Unreachable, Unavailable):
            if self._exchange.now + _SHORTEST_POLL < until:
                raise
            return None
        return JobState.read(document)


def _jobs(workload: str) -> str:
    return f"/v1/jobs/{part(workload)}"


def _job(workload: str, key: str) -> str:
    return f"{_jobs(workload)}/{part(key)}"


def _names(job: Reference) -> tuple[str, str]:
    return job if isinstance(job, tuple) else (job.workload, job.key)


def _when(delay: Duration | None, priority: int) -> list[tuple[str, str]]:
    milliseconds = None if delay is None else duration_ms(duration(delay))
    return query_of(delayMs=milliseconds or None, priority=priority or None)


def _record(document: object) -> Mapping[str, Any]:
    return document if isinstance(document, dict) else {"value": document}


def _result_of(state: JobState) -> Any:  # noqa: ANN401 - whatever the job's function returned
    if state.status == "processed":
        stored = state.result
        return stored["value"] if stored is not None and set(stored) == {"value"} else stored
    code, message = state.last_error_code, state.last_error_message
    if state.status == "dead_lettered":
        letter = state.dead_letters[-1] if state.dead_letters else None
        raise JobFailed(state.workload, state.key, code or "FAILED", message or "The job failed for good.", letter)
    if state.cancelled:
        raise JobCancelled(state.workload, state.key, "CANCELLED", "The job was cancelled.")
    raise JobExpired(state.workload, state.key, code or "EXPIRED", message or "Its time was over before it was done.")
