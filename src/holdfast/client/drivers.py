"""The two drivers: they perform the steps of a verb, blocking or with ``await``.

``blocking``, ``awaiting``, ``iterating`` and ``async_iterating`` make a method of a client from a verb. The method has
the verb's parameters, and its types.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import cached_property
from inspect import Signature, signature
from typing import Any, BinaryIO, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast, overload

import httpx

from .steps import Answer, Emit, Items, NoAnswer, Open, ReadLine, Send, Step, Steps, Upload, Wait

Verbs = TypeVar("Verbs")
Out = TypeVar("Out")
P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")

_PIECE: Final = 256 * 1024
_NOTHING_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""A connection that waits for a job must not keep other requests from theirs. The API has a limit of its own."""
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def trust_env(base_url: str) -> bool:
    """Whether the proxies of the environment are used: not for an API on this machine."""
    return httpx.URL(base_url).host not in _LOCAL


def _lost(error: httpx.HTTPError) -> NoAnswer:
    return NoAnswer(type(error).__name__, not isinstance(error, _NOTHING_SENT))


def _arguments(send: Send) -> dict[str, Any]:
    headers = dict(send.headers)
    if isinstance(send.body, Upload):
        headers["content-length"] = str(len(send.body))
    return {
        "method": send.method,
        "url": send.url,
        "params": list(send.query) or None,
        "headers": headers,
        "timeout": send.timeout,
    }


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


def _pieces(upload: Upload) -> Generator[bytes, None, None]:
    yield upload.before
    with upload.path.open("rb") as file:
        left = upload.size
        while left:
            yield (piece := _piece(file, left))
            left -= len(piece)
            if upload.sent is not None:
                upload.sent(upload.size - left, upload.size)
    yield upload.after


def _piece(file: BinaryIO, left: int) -> bytes:
    piece = file.read(min(_PIECE, left))
    if not piece:
        message = "The file became shorter while it was sent."
        raise OSError(message)
    return piece


async def _pieces_in_threads(upload: Upload) -> AsyncIterator[bytes]:
    """The same, without blocking the event loop while the disk is read."""
    pieces = _pieces(upload)
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()


# --- blocking ---------------------------------------------------------------------------------------------------------


class Driver:
    """Performs steps, and blocks. Many threads may use one."""

    def __init__(self, http: httpx.Client, sleep: Callable[[float], object]) -> None:
        self.http = http
        self.sleep = sleep

    def run(self, steps: Steps[Result]) -> Result:
        """The result of a verb."""
        with _Performer(self) as performer:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    return cast("Result", end.value)
                performer.perform(step)

    def iterate(self, steps: Items[Item]) -> Iterator[Item]:
        """The items of a verb."""
        with _Performer(self) as performer:
            for step in steps:
                if isinstance(step, Emit):
                    yield step.item
                else:
                    performer.perform(step)


class _Performer:
    """Performs the steps of one verb. The stream that it opened is closed at the end."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._opened = contextlib.ExitStack()
        self._lines: Iterator[str] = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def perform(self, step: Step) -> None:
        if isinstance(step, Wait):
            self._driver.sleep(step.seconds)
            return
        try:
            match step:
                case Open():
                    step.reply = self._open(step)
                case Send():
                    content = _pieces(step.body) if isinstance(step.body, Upload) else step.body
                    step.reply = _answer(self._driver.http.request(**_arguments(step), content=content))
                case ReadLine():
                    step.reply = next(self._lines, None)
        except httpx.HTTPError as error:
            step.reply = _lost(error)

    def _open(self, step: Open) -> Answer:
        self._opened.close()
        response = self._opened.enter_context(self._driver.http.stream(**_arguments(step)))
        if response.is_success:
            self._lines = response.iter_lines()
            return Answer(response.status_code, response.headers, b"")
        response.read()
        return _answer(response)


# --- with await -------------------------------------------------------------------------------------------------------


class AsyncDriver:
    """Performs steps with ``await``."""

    def __init__(self, http: httpx.AsyncClient, sleep: Callable[[float], Awaitable[object]]) -> None:
        self.http = http
        self.sleep = sleep

    async def run(self, steps: Steps[Result]) -> Result:
        """The result of a verb."""
        async with _AsyncPerformer(self) as performer:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    return cast("Result", end.value)
                await performer.perform(step)

    async def iterate(self, steps: Items[Item]) -> AsyncIterator[Item]:
        """The items of a verb."""
        async with _AsyncPerformer(self) as performer:
            for step in steps:
                if isinstance(step, Emit):
                    yield step.item
                else:
                    await performer.perform(step)


class _AsyncPerformer:
    """The same as :class:`_Performer`, with ``await``."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._opened = contextlib.AsyncExitStack()
        self._lines: AsyncIterator[str] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def perform(self, step: Step) -> None:
        if isinstance(step, Wait):
            await self._driver.sleep(step.seconds)
            return
        try:
            match step:
                case Open():
                    step.reply = await self._open(step)
                case Send():
                    content = _pieces_in_threads(step.body) if isinstance(step.body, Upload) else step.body
                    step.reply = _answer(await self._driver.http.request(**_arguments(step), content=content))
                case ReadLine():
                    step.reply = None if self._lines is None else await anext(self._lines, None)
        except httpx.HTTPError as error:
            step.reply = _lost(error)

    async def _open(self, step: Open) -> Answer:
        await self._opened.aclose()
        response = await self._opened.enter_async_context(self._driver.http.stream(**_arguments(step)))
        if response.is_success:
            self._lines = response.aiter_lines()
            return Answer(response.status_code, response.headers, b"")
        await response.aread()
        return _answer(response)


# --- methods ----------------------------------------------------------------------------------------------------------


class Part(Generic[Verbs]):
    """A client, or one of its parts: its verbs, and the driver that performs them."""

    def __init__(self, verbs: Verbs, driver: Driver) -> None:
        self._verbs = verbs
        self._driver = driver


class AsyncPart(Generic[Verbs]):
    """The same with ``await``."""

    def __init__(self, verbs: Verbs, driver: AsyncDriver) -> None:
        self._verbs = verbs
        self._driver = driver


class _Method(Generic[Verbs, P, Out]):
    """A verb as a method. It has the verb's name, parameters and docstring."""

    def __init__(self, verb: Callable[Concatenate[Verbs, P], Out]) -> None:
        self.verb = verb
        self.__doc__ = verb.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"{owner.__name__}.{name}"

    def dressed(self, method: Callable[P, Result]) -> Callable[P, Result]:
        """The method with the signature and the docstring of the verb."""
        method.__doc__, method.__name__, method.__qualname__ = self.__doc__, self.verb.__name__, self.name
        method.__signature__ = self._signature  # type: ignore[attr-defined]  # inspect reads it
        return method

    @cached_property
    def _signature(self) -> Signature:
        found = signature(self.verb)
        own, *others = found.parameters.values()
        del own
        return found.replace(parameters=others, return_annotation=Signature.empty)


class blocking(_Method[Verbs, P, Steps[Result]], Generic[Verbs, P, Result]):  # noqa: N801 - used as a function
    """A verb with a result, as a method that blocks."""

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: Part[Verbs], owner: type) -> Callable[P, Result]: ...
    def __get__(self, part: Part[Verbs] | None, owner: type) -> Self | Callable[P, Result]:
        if part is None:
            return self

        def method(*args: P.args, **options: P.kwargs) -> Result:
            return part._driver.run(self.verb(part._verbs, *args, **options))  # noqa: SLF001 - its own part

        return self.dressed(method)


class awaiting(_Method[Verbs, P, Steps[Result]], Generic[Verbs, P, Result]):  # noqa: N801 - as above
    """A verb with a result, as a coroutine function."""

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: AsyncPart[Verbs], owner: type) -> Callable[P, Coroutine[Any, Any, Result]]: ...
    def __get__(self, part: AsyncPart[Verbs] | None, owner: type) -> Self | Callable[P, Coroutine[Any, Any, Result]]:
        if part is None:
            return self

        async def method(*args: P.args, **options: P.kwargs) -> Result:
            return await part._driver.run(self.verb(part._verbs, *args, **options))  # noqa: SLF001 - its own part

        return self.dressed(method)


class iterating(_Method[Verbs, P, Items[Item]], Generic[Verbs, P, Item]):  # noqa: N801 - as above
    """A verb with items, as a method that returns an iterator."""

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: Part[Verbs], owner: type) -> Callable[P, Iterator[Item]]: ...
    def __get__(self, part: Part[Verbs] | None, owner: type) -> Self | Callable[P, Iterator[Item]]:
        if part is None:
            return self

        def method(*args: P.args, **options: P.kwargs) -> Iterator[Item]:
            return part._driver.iterate(self.verb(part._verbs, *args, **options))  # noqa: SLF001 - its own part

        return self.dressed(method)


class async_iterating(_Method[Verbs, P, Items[Item]], Generic[Verbs, P, Item]):  # noqa: N801 - as above
    """A verb with items, as a method that returns an async iterator."""

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: AsyncPart[Verbs], owner: type) -> Callable[P, AsyncIterator[Item]]: ...
    def __get__(self, part: AsyncPart[Verbs] | None, owner: type) -> Self | Callable[P, AsyncIterator[Item]]:
        if part is None:
            return self

        def method(*args: P.args, **options: P.kwargs) -> AsyncIterator[Item]:
            return part._driver.iterate(self.verb(part._verbs, *args, **options))  # noqa: SLF001 - its own part

        return self.dressed(method)
