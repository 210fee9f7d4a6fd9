"""Jobs that are functions: ``@app.job`` makes a workload out of a function, and a typed name for its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, update_wrapper
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from .effects import Collection, Effect
from .entries import OWNER
from .errors import ConfigurationError, LeaseLost, PermanentError
from .jobs import Context, Data, Job
from .outcomes import Done, Outcome
from .queues import RateLimit
from .retry import ExponentialBackoff, RetryPolicy
from .times import Duration
from .workload import Workload

Result_co = TypeVar("Result_co", covariant=True)
Returned = TypeVar("Returned")
FieldOrFunction = str | Callable[[Any], str]

BAD_RESULT: Final = "BAD_RESULT"
MOST_THREADS: Final = 16
"""How many jobs of one function run at the same time in threads of one process, unless ``concurrency`` says so."""
_VALUE: Final = "value"


class SyncContext:
    """The context of a handler that is a plain function and runs in a thread: the same verbs, without ``await``."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._ended = threading.Event()

    @property
    def job(self) -> Job[Any]:
        """As :attr:`Context.job`."""
        return self._context.job

    @property
    def worker(self) -> str:
        """As :attr:`Context.worker`."""
        return self._context.worker

    @property
    def cancelled(self) -> bool:
        """As :attr:`Context.cancelled`. Also true after the attempt has ended without this thread, as by its timeout.

        A thread cannot be stopped from outside: a long function should look at this now and then.
        """
        return self._ended.is_set() or self._context.cancelled

    def get(self, collection: str, key: str) -> Mapping[str, Any] | None:
        """As :meth:`Context.get`."""
        return self._wait(self._context.get(collection, key))

    def write(self, *effects: Effect) -> None:
        """As :meth:`Context.write`."""
        self._context.write(*effects)

    def submit(
        self, job: JobFunction[Data, Any] | Workload[Data], data: Data, *, delay: Duration = 0.0, priority: int = 0
    ) -> None:
        """As :meth:`Context.submit`."""
        self._context.submit(job, data, delay=delay, priority=priority)

    def proceed(self, effects: Sequence[Effect] = (), *, repeatable: bool = False) -> None:
        """As :meth:`Context.proceed`."""
        self._wait(self._context.proceed(effects, repeatable=repeatable))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """As :meth:`Context.progress`."""
        self._context.progress(done, total, note)

    def log(self, message: str, **facts: Any) -> None:  # noqa: ANN401 - a log line has facts of any kind
        """As :meth:`Context.log`."""
        self._context.log(message, **facts)

    @contextlib.contextmanager
    def limit(self, name: str, rate: RateLimit | str) -> Iterator[None]:
        """As :meth:`Context.limit`."""
        permit = self._context.limit(name, rate)
        self._wait(permit.__aenter__())
        try:
            yield
        finally:
            self._wait(permit.__aexit__(None, None, None))

    def reserve(self, name: str, rate: RateLimit | str) -> timedelta:
        """As :meth:`Context.reserve`."""
        return self._wait(self._context.reserve(name, rate))

    def _wait(self, work: typing.Coroutine[Any, Any, Returned] | typing.Awaitable[Returned]) -> Returned:
        if self._ended.is_set():
            cast("typing.Coroutine[Any, Any, Returned]", work).close()
            raise LeaseLost
        return asyncio.run_coroutine_threadsafe(_awaited(work), self._loop).result()

    def end(self) -> None:
        """For the worker alone: the attempt has ended, whatever the thread still does."""
        self._ended.set()


async def _awaited(work: typing.Awaitable[Returned]) -> Returned:
    return await work


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What ``@app.job`` was given, in the types of a :class:`Workload`."""

    name: str
    key: FieldOrFunction
    retry: RetryPolicy = field(default_factory=ExponentialBackoff)
    timeout: timedelta = Workload.timeout
    ttl: timedelta | None = None
    queue: str | None = None
    rate: RateLimit | None = None
    fairness_key: FieldOrFunction | None = None
    concurrency: int | None = None
    version: int = 1
    upcasts: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    labels: Sequence[str] | Callable[[Any], Mapping[str, str]] = ()
    collections: Sequence[Collection] = ()
    retention: timedelta = Workload.retention
    letter_retention: timedelta = Workload.letter_retention


class FunctionWorkload(Workload[Data]):
    """The workload of one function. The function gets the job's data and, if it has a second parameter, the context."""

    stoppable = True

    def __init__(self, function: Callable[..., Any], contract: type[Data], result: Any, options: JobOptions) -> None:  # noqa: ANN401 - a type
        self.name = options.name
        self.contract = contract
        self.queue = options.queue or options.name
        self.dead_letter_queue = f"{self.queue}-dlq"
        self.retry = options.retry
        self.timeout = options.timeout
        self.ttl = options.ttl
        self.rate_limit = options.rate
        self.version = options.version
        self.upcasts = options.upcasts
        self.collections = tuple(options.collections)
        self.retention = options.retention
        self.letter_retention = options.letter_retention
        named = () if callable(options.labels) else tuple(options.labels)
        self.indexed_labels = (*named, OWNER)
        self._function = function
        self._with_context = len(inspect.signature(function).parameters) > 1
        self._threads = None if inspect.iscoroutinefunction(function) else _Threads(options.concurrency or MOST_THREADS)
        self.concurrency = options.concurrency if self._threads is None else self._threads.most
        self._key = _reader_of(options.key, "key", contract, options.name)
        self._fairness_key = (
            None
            if options.fairness_key is None
            else _reader_of(options.fairness_key, "fairness_key", contract, options.name)
        )
        self._labels = _labels_of(options.labels, contract, options.name)
        self._result = _adapter(result, options.name)

    def key(self, data: Data) -> str:
        """The field or the function that ``key=`` names."""
        return self._key(data)

    def fairness_key(self, data: Data) -> str | None:
        """The field or the function that ``fairness_key=`` names."""
        return None if self._fairness_key is None else self._fairness_key(data)

    def labels(self, data: Data) -> dict[str, str]:
        """The fields or the function that ``labels=`` names."""
        return dict(self._labels(data))

    async def handle(self, job: Job[Data], context: Context) -> Outcome:
        """Call the function. What it returns is the job's result, unless it is an outcome."""
        if self._threads is None:
            returned = await (self._function(job.data, context) if self._with_context else self._function(job.data))
        else:
            returned = await self._in_thread(self._threads, job.data, context)
        return returned if isinstance(returned, Outcome) else Done(result=self.stored_result(returned))

    async def _in_thread(self, threads: _Threads, data: Data, context: Context) -> Any:  # noqa: ANN401 - what it returns
        blocking = SyncContext(context, asyncio.get_running_loop())
        try:
            return await threads.run(partial(self._function, *((data, blocking) if self._with_context else (data,))))
        finally:
            blocking.end()

    def stored_result(self, value: object) -> Mapping[str, Any] | None:
        """A result as the ledger keeps it: a JSON object. Another value is kept in the field ``value``."""
        if value is None:
            return None
        try:
            plain = self._result.dump_python(value, mode="json", warnings="error")
        except Exception as error:
            message = f"The function returned {type(value).__name__}, which does not fit its annotation."
            raise PermanentError(BAD_RESULT, message) from error
        return plain if isinstance(plain, dict) and set(plain) != {_VALUE} else {_VALUE: plain}

    def result_of(self, stored: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - the function's own type
        """The result that the ledger keeps, in the function's type."""
        if stored is None:
            return None
        return self._result.validate_python(stored[_VALUE] if set(stored) == {_VALUE} else dict(stored))


class JobFunction(Generic[Data, Result_co]):
    """A function that is a job: the name by which its jobs are submitted, with the types of its data and its result.

    Calling it calls the function itself, as in a plain unit test.
    """

    def __init__(self, function: Callable[..., Any], workload: FunctionWorkload[Data]) -> None:
        update_wrapper(self, function)
        self._function = function
        self.workload: FunctionWorkload[Data] = workload
        """The workload beneath."""

    @property
    def name(self) -> str:
        """The name of the workload."""
        return self.workload.name

    def result_of(self, stored: Mapping[str, Any] | None) -> Result_co:
        """The typed result, from the result in the ledger."""
        return cast("Result_co", self.workload.result_of(stored))

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function itself."""
        return self._function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<job {self.name}>"


class _Threads:
    """Runs functions in threads, so many at a time.

    The threads are daemons: a function that never returns does not keep its process alive. It keeps its place, so that
    such functions do not fill the process with threads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = threading.Semaphore(most)

    async def run(self, call: Callable[[], Returned]) -> Returned:
        """What the function returns or raises. If this is cancelled, the function goes on, and nobody waits for it."""
        loop = asyncio.get_running_loop()
        # Threads release places, of any loop. Nobody waits here unless functions run on after their timeout.
        while not self._free.acquire(blocking=False):  # noqa: ASYNC110 - an event belongs to one loop
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
        answer: asyncio.Future[Returned] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                tell = partial(_resolve, answer, context.run(call), None)
            except BaseException as error:  # noqa: BLE001 - raised in the task that waits
                tell = partial(_resolve, answer, None, error)
            finally:
                self._free.release()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell)

        threading.Thread(target=work, name="holdfast-job", daemon=True).start()
        return await answer


_LOOK_AGAIN: Final = timedelta(milliseconds=50)


def _resolve(answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:  # noqa: ANN401 - any result
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration):  # a future refuses it
        answer.set_exception(RuntimeError("The function raised StopIteration."))
    else:
        answer.set_exception(error)


# --- reading what the decorator was given ---------------------------------------------------------------------------


def job_function(
    function: Callable[..., Any], options: JobOptions, names: Mapping[str, Any]
) -> JobFunction[BaseModel, Any]:
    """The job of this function. ``names`` are those at the place of the decorator, for annotations that are texts."""
    try:
        hints = typing.get_type_hints(function, localns=dict(names))
        parameters = list(inspect.signature(function).parameters.values())
    except (NameError, TypeError, ValueError) as error:
        message = f"{options.name}: the annotations of this function cannot be read: {error}"
        raise ConfigurationError(message) from error
    contract = hints.get(parameters[0].name) if parameters else None
    if len(parameters) not in {1, 2} or not (isinstance(contract, type) and issubclass(contract, BaseModel)):
        message = (
            f"{options.name}: a job is a function of one pydantic model and, if it wants one, a Context: "
            "async def job(invoice: Invoice, ctx: Context) -> Pdf."
        )
        raise ConfigurationError(message)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{options.name}: a job returns its result; it cannot be a generator."
        raise ConfigurationError(message)
    workload = FunctionWorkload(function, contract, hints.get("return", Any), options)
    return JobFunction(function, workload)


def _adapter(result: Any, name: str) -> TypeAdapter[Any]:  # noqa: ANN401 - a type
    try:
        return TypeAdapter(_without_outcomes(result))
    except PydanticUserError as error:
        message = f"{name}: the result must have a type that pydantic can write as JSON: {error.message}"
        raise ConfigurationError(message) from error


def _without_outcomes(result: Any) -> Any:  # noqa: ANN401 - a type
    """The type of the result of a function that may also return outcomes: of ``Pdf | Snooze`` it is ``Pdf``."""
    outcomes = typing.get_args(Outcome)
    union = typing.get_origin(result) in {typing.Union, types.UnionType}
    kinds = typing.get_args(result) if union else (result,)
    own = tuple(each for each in kinds if not (isinstance(each, type) and issubclass(each, outcomes)))
    return typing.Union[own] if own else Any  # noqa: UP007 - the types are known at run time


def _reader_of(
    source: FieldOrFunction, option: str, contract: type[BaseModel], name: str
) -> Callable[[BaseModel], str]:
    if not isinstance(source, str):
        return source
    _check_fields([source], option, contract, name)
    return lambda data: str(getattr(data, source))


def _labels_of(
    source: Sequence[str] | Callable[[Any], Mapping[str, str]], contract: type[BaseModel], name: str
) -> Callable[[BaseModel], Mapping[str, str]]:
    if callable(source):
        return source
    fields = (source,) if isinstance(source, str) else tuple(source)
    _check_fields(fields, "labels", contract, name)
    return lambda data: {each: str(value) for each in fields if (value := getattr(data, each)) is not None}


def _check_fields(fields: Sequence[str], option: str, contract: type[BaseModel], name: str) -> None:
    for each in fields:
        if each not in contract.model_fields:
            known = ", ".join(contract.model_fields)
            message = f"{name}: {option}={each!r} is no field of {contract.__name__}. Its fields: {known}."
            raise ConfigurationError(message)
