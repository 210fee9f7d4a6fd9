"""The app: what a process runs. Functions become jobs with :meth:`App.job`, and schedules with :meth:`App.schedule`."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, cast, overload

from pydantic import BaseModel

from .effects import Collection
from .errors import ConfigurationError
from .functions import FieldOrFunction, JobFunction, JobOptions, SyncContext, job_function
from .jobs import Context
from .outcomes import Outcome
from .queues import RateLimit, rate
from .retry import ExponentialBackoff, ListedDelays, RetryPolicy
from .schedules import CatchUp, Schedule, Tick
from .times import Duration, duration
from .workload import Workload

Data = TypeVar("Data", bound=BaseModel)
Result = TypeVar("Result")
Backoff = RetryPolicy | Sequence[Duration]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")
_ATTEMPTS: Final = ExponentialBackoff().max_attempts


class JobDecorator(Protocol):
    """What ``@app.job(...)`` returns."""

    @overload
    def __call__(self, function: Callable[[Data, Context], Awaitable[Outcome]], /) -> JobFunction[Data, Any]: ...

    @overload
    def __call__(
        self, function: Callable[[Data, Context], Awaitable[Result | Outcome]], /
    ) -> JobFunction[Data, Result]: ...

    @overload
    def __call__(self, function: Callable[[Data], Awaitable[Outcome]], /) -> JobFunction[Data, Any]: ...

    @overload
    def __call__(self, function: Callable[[Data], Awaitable[Result | Outcome]], /) -> JobFunction[Data, Result]: ...

    @overload
    def __call__(self, function: Callable[[Data, SyncContext], Outcome], /) -> JobFunction[Data, Any]: ...

    @overload
    def __call__(self, function: Callable[[Data, SyncContext], Result | Outcome], /) -> JobFunction[Data, Result]: ...

    @overload
    def __call__(self, function: Callable[[Data], Outcome], /) -> JobFunction[Data, Any]: ...

    @overload
    def __call__(self, function: Callable[[Data], Result | Outcome], /) -> JobFunction[Data, Result]: ...

    def __call__(self, function: Callable[..., Any], /) -> JobFunction[Any, Any]:
        """The function as a job."""
        ...


class App:
    """What a process runs: the user's jobs, schedules, workloads and features.

    Named by ``HOLDFAST_APP`` or ``--app module:attribute``. ``features`` are instances of
    :class:`holdfast.feature.Feature` that no entry point announces.
    """

    def __init__(self, workloads: Sequence[Workload[Any]] = (), *, features: Sequence[Any] = ()) -> None:
        self._workloads: list[Workload[Any]] = []
        self._features: list[Any] = list(features)
        for each in workloads:
            self.add(each)

    @property
    def workloads(self) -> tuple[Workload[Any], ...]:
        """All workloads: those of functions and schedules too."""
        return tuple(self._workloads)

    @property
    def features(self) -> tuple[Any, ...]:
        """The features that no entry point announces."""
        return tuple(self._features)

    def add(self, workload: Workload[Any]) -> None:
        """Add a workload. Its name and its queues must differ from those of the others."""
        if not _NAME.fullmatch(workload.name):
            message = f"{workload.name!r} cannot be the name of a workload: use up to 60 letters, digits, - and _."
            raise ConfigurationError(message)
        missing = [version for version in range(1, workload.version) if version not in workload.upcasts]
        if missing:
            message = f"{workload.name}: version {workload.version} needs an upcast from version {missing[0]}."
            raise ConfigurationError(message)
        for each in self._workloads:
            if each is workload:
                return
            if each.name == workload.name:
                message = f"Each workload name may be used once; {workload.name} is used twice."
                raise ConfigurationError(message)
        queues = [queue for each in (*self._workloads, workload) for queue in (each.queue, each.dead_letter_queue)]
        twice = sorted({queue for queue in queues if queues.count(queue) > 1})
        if twice:
            message = f"Each queue may be used once; {', '.join(twice)} is used twice."
            raise ConfigurationError(message)
        self._workloads.append(workload)

    def include(self, other: App) -> None:
        """Take over the workloads and features of another app, such as that of another module."""
        for workload in other.workloads:
            self.add(workload)
        self._features += [each for each in other.features if each not in self._features]

    def job(  # noqa: PLR0913 - what a workload can be
        self,
        *,
        key: FieldOrFunction,
        name: str | None = None,
        attempts: int = _ATTEMPTS,
        backoff: Backoff | None = None,
        timeout: Duration = Workload.timeout,
        ttl: Duration | None = None,
        queue: str | None = None,
        rate: RateLimit | str | None = None,
        fairness_key: FieldOrFunction | None = None,
        concurrency: int | None = None,
        version: int = 1,
        upcast: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MappingProxyType({}),
        labels: Sequence[str] | Callable[[Any], Mapping[str, str]] = (),
        collections: Sequence[Collection] = (),
        retention: Duration = Workload.retention,
        letter_retention: Duration = Workload.letter_retention,
    ) -> JobDecorator:
        """Make a function a job.

        The function takes one pydantic model and, if it wants one, the :class:`Context`; what it returns is the result.
        A plain function runs in a thread, with a :class:`SyncContext`.

        ``key`` identifies a job, as the name of a field or a function of the data: one key, one job. ``name`` is the
        name of the workload, by default that of the function. After ``attempts`` the job becomes a dead letter.
        ``backoff`` are the waits in between, as a list such as ``["1s", "10s", "1m"]`` or a policy. Each attempt may
        take ``timeout``. A job that is older than ``ttl`` is not run any more. ``rate`` limits how many jobs all
        workers start, such as ``"5/s"``. Jobs with different ``fairness_key`` take turns. ``concurrency`` is the most
        jobs at a time in one process. ``labels`` are fields by which people find jobs. ``version`` is the version of
        the model, and ``upcast[n]`` makes the content of version n + 1 out of that of version n.
        """

        def decorate(function: Callable[..., Any]) -> JobFunction[Any, Any]:
            chosen = name or function.__name__
            options = _in_words(
                chosen,
                lambda: JobOptions(
                    name=chosen,
                    key=key,
                    retry=_policy(attempts, backoff),
                    timeout=duration(timeout),
                    ttl=None if ttl is None else duration(ttl),
                    queue=queue,
                    rate=None if rate is None else _rate(rate),
                    fairness_key=fairness_key,
                    concurrency=_positive("concurrency", concurrency),
                    version=_positive("version", version) or 1,
                    upcasts=dict(upcast),
                    labels=labels,
                    collections=collections,
                    retention=duration(retention),
                    letter_retention=duration(letter_retention),
                ),
            )
            made = job_function(function, options, sys._getframe(1).f_locals)  # noqa: SLF001 - as pydantic does
            self.add(made.workload)
            return made

        return cast("JobDecorator", decorate)

    def schedule(  # noqa: PLR0913 - when, and what a workload can be
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        jitter: Duration = timedelta(0),
        name: str | None = None,
        attempts: int = _ATTEMPTS,
        backoff: Backoff | None = None,
        timeout: Duration = Workload.timeout,
        queue: str | None = None,
    ) -> JobDecorator:
        """Run a function by the clock: ``async def remind(tick: Tick, ctx: Context) -> None``.

        ``cron`` has five fields, such as ``"0 7 * * 1-5"``, in ``timezone``; or the function runs ``every`` so often.
        Each tick is one job (I22). ``catch_up`` says what happens with ticks that nobody was there to submit: the
        ``last`` of them is submitted, ``all`` of them, or ``none``. ``jitter`` delays each tick by up to so long.
        """

        def decorate(function: Callable[..., Any]) -> JobFunction[Any, Any]:
            chosen = name or function.__name__
            options, schedule = _in_words(
                chosen,
                lambda: (
                    JobOptions(
                        name=chosen,
                        key=_tick_key,
                        retry=_policy(attempts, backoff),
                        timeout=duration(timeout),
                        queue=queue,
                    ),
                    Schedule(
                        name=chosen,
                        cron=cron,
                        every=None if every is None else duration(every),
                        timezone=timezone,
                        catch_up=catch_up,
                        jitter=duration(jitter),
                    ),
                ),
            )
            made = job_function(function, options, sys._getframe(1).f_locals)  # noqa: SLF001 - as pydantic does
            if made.workload.contract is not Tick:
                message = f"{chosen}: a schedule is a function of a Tick: async def {chosen}(tick: Tick, ctx: Context)."
                raise ConfigurationError(message)
            made.workload.schedule = schedule
            self.add(made.workload)
            return made

        return cast("JobDecorator", decorate)


_rate = rate  # the option of the same name hides the function
Given = TypeVar("Given")


def _in_words(name: str, read: Callable[[], Given]) -> Given:
    """What was read. A value that cannot be used is a :class:`ConfigurationError` that names the job."""
    try:
        return read()
    except ValueError as error:
        message = f"{name}: {error}"
        raise ConfigurationError(message) from error


def _tick_key(tick: Tick) -> str:
    return tick.key


def _policy(attempts: int, backoff: Backoff | None) -> RetryPolicy:
    """The retry policy. A policy of the user's own keeps its own number of attempts, unless ``attempts`` was given."""
    most = _positive("attempts", attempts) or 1
    if backoff is None:
        return ExponentialBackoff(max_attempts=most)
    if isinstance(backoff, str):
        message = f"backoff={backoff!r} is not a list of waits: write backoff=[{backoff!r}]."
        raise ValueError(message)  # noqa: TRY004 - reported as all values that cannot be used
    if isinstance(backoff, Sequence):
        return ListedDelays(tuple(map(duration, backoff)), most)
    if isinstance(backoff, ExponentialBackoff | ListedDelays) and most != _ATTEMPTS:
        return replace(backoff, max_attempts=most)
    return backoff


def _positive(option: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        message = f"{option}={value!r} must be a whole number from 1."
        raise ValueError(message)
    return value
