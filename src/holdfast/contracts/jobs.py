"""A job as its handler sees it, and what the engine offers to the handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from .effects import Effect
from .queues import RateLimit
from .times import Duration

if TYPE_CHECKING:  # both are about jobs
    from .functions import JobFunction
    from .workload import Workload

Data = TypeVar("Data", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class JobState(Generic[Data]):
    """How far a job is, as :meth:`Workload.on_transition` sees it. ``attempt`` is its last attempt, as far as known.

    ``attempt`` is 1 on the first try of a generation, and 0 before that and for a job that ends without a new try.
    """

    key: str
    job_id: str
    data: Data
    attempt: int
    generation: int


@dataclass(frozen=True, slots=True)
class Job(JobState[Data]):
    """One job, as its handler sees it."""

    received_at: datetime
    deadline: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class Context(Protocol):
    """What the engine offers to a handler while it works on one job."""

    @property
    def job(self) -> Job[Any]:
        """The job: its key, attempt, generation, deadline, labels and data."""
        ...

    @property
    def worker(self) -> str:
        """The name of the worker process."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the job's sender has cancelled it. Then stop and return :class:`Expired`.

        Needs ``Workload.stoppable``; jobs that are functions have it.
        """
        ...

    async def until_cancelled(self) -> None:
        """Return when the job's sender cancels it."""
        ...

    async def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """Read a record. A handler does not write: it returns effects, or gives them to :meth:`write`."""
        ...

    async def get_many(self, wanted: Sequence[tuple[str, str]]) -> Sequence[Mapping[str, Any] | None]:
        """Read records, by collection and key, with one round trip to the store. Handlers share their reads."""
        ...

    def write(self, *effects: Effect) -> None:
        """Commit these effects together with the end of the job, if the job is done. Otherwise nothing is written."""
        ...

    def submit(
        self, job: JobFunction[Data, Any] | Workload[Data], data: Data, *, delay: Duration = 0.0, priority: int = 0
    ) -> None:
        """Submit a job that follows from this job, in the commit that ends this job.

        If this job fails, is retried or expires, nothing is submitted. A job whose key is known already stays as it is.
        The new job belongs to the tenant of this job, and has its trace id.
        """
        ...

    async def proceed(self, effects: Sequence[Effect] = (), *, repeatable: bool = False) -> None:
        """Pass the point of no return: the next step cannot be undone, and must not happen twice (I11).

        Returns once the effects and the mark are committed; calls of many handlers share a commit. From here on only
        the outcome that the handler *returns* counts. If the handler raises, times out or is cancelled, or if its
        worker is lost, the job is dead-lettered with :meth:`Workload.interrupted`. It does not run again until a person
        replays it. With ``repeatable``, only the effects are committed.

        Raises :class:`LeaseLost` if the job belongs to another worker by now, and :class:`DeadlinePassed` if the job
        has expired (I10). Do not catch them: the engine handles both.
        """
        ...

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the job is. People see it within a second. It costs one write for all jobs of a process."""
        ...

    def log(self, message: str, **facts: Any) -> None:  # noqa: ANN401 - a log line has facts of any kind
        """Write one log line, at level info. Leave out or mask personal data: the log cannot recognise all of it."""
        ...

    def limit(self, name: str, rate: RateLimit | str) -> AbstractAsyncContextManager[None]:
        """Wait for a permit of a limit that all workers of all processes share, and keep the permit in the body.

        The body runs at most ``rate.most`` times in any span of ``rate.per``, wherever it is measured. ``rate`` may be
        a text such as ``"5/s"``.
        """
        ...

    async def reserve(self, name: str, rate: RateLimit | str) -> timedelta:
        """How long the job has to wait for its place in an even flow: snooze for that long; at zero, go on."""
        ...
