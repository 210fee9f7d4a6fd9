"""Running the child process that reads one document. A fault in the child costs at most one attempt.

A crash, an endless loop or a lack of memory in the child becomes a :class:`DocumentFailure` with its own code. However
the run ends, also by cancellation, the child's whole process group is killed and its end is awaited first: no process,
no zombie and no pipe is left. If the worker itself is killed, the child sees its standard input close, and ends too.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from holdfast import scrub

from .child.confinement import Confinement
from .child.protocol import (
    Answer,
    Failed,
    Finished,
    Message,
    Plan,
    Question,
    Spec,
    Stage,
    Unit,
    decoded,
    spec_line,
)
from .child_process import Child
from .engines import ENGINES
from .failures import Code, DocumentFailure
from .units import Cap, too_large

_INHERITED: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH")
_INHERITED_BY_THE_CALLER: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""A child gets only these variables of the worker's environment, because the environment holds secrets."""

_SET: Final = {"HOME": "/nonexistent"}
"""A child writes no file, and reads none of the user's."""

LONGEST_MESSAGE: Final = 2 * 1024 * 1024
"""Bytes of one message of the child, unless the options have another number. A dense page has a hundredth of it."""
_LONGEST_QUESTION: Final = 8 * 1024 * 1024
"""Bytes of one question to a model: it has the image of a page in it, or a stretch of sound."""
_READ_IN_THREAD: Final = 64 * 1024
"""Bytes. Reading a longer message takes so long that the event loop would stand still meanwhile."""
_LONGEST_WAIT: Final = 24 * 3600.0
"""Seconds. A model's request for a longer wait is cut to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    """The child's limits. ``memory`` is in bytes; None: no limit.

    ``unit_timeout`` is the longest time between two messages, ``total_timeout`` the longest attempt.
    ``longest_message`` is the most bytes of one message, and so of one page. ``environment`` holds the keys of the
    engines. Only the caller gets a key.
    """

    memory: int | None
    unit_timeout: timedelta
    total_timeout: timedelta
    longest_message: int = LONGEST_MESSAGE
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


async def read_in_child(
    spec: Spec,
    options: ChildOptions,
    on_message: Callable[[Plan | Unit | Stage], Awaitable[None]],
    command: Sequence[str] | None = None,
) -> None:
    """Read the document in a child process. ``on_message`` is awaited for each message, in order.

    The child waits while ``on_message`` runs. Returns when all is read; otherwise raises :class:`DocumentFailure`.
    """
    processor_seconds = math.ceil(options.total_timeout.total_seconds()) * (spec.threads + 1)
    spec = replace(spec, memory=options.memory, processor_seconds=processor_seconds)
    asks = ENGINES[spec.engine].model is not None
    longest = max(options.longest_message, _LONGEST_QUESTION) if asks else options.longest_message
    child, caller = Child(options.memory, longest), _Caller(spec, options)
    try:
        await child.start(command or _program("child"), _environment())
        await child.give(spec_line(spec))
        await _follow(child, caller, options, on_message)
    finally:
        try:
            await child.end()
        finally:
            await caller.end()


async def confinement_here() -> Confinement:
    """How a child is confined on this machine. A process tries it: a container may forbid what the kernel has."""
    try:
        probe = await asyncio.create_subprocess_exec(
            *_program("child.confinement"),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        output, _ = await probe.communicate()
        return Confinement(**json.loads(output))
    except (OSError, ValueError):
        return Confinement()


class _Caller:
    """The second child, which asks a model on the network. It is started with the first question."""

    def __init__(self, spec: Spec, options: ChildOptions) -> None:
        self._spec = spec
        self._options = options
        self._child: Child | None = None
        self._questions = 0
        self._units = 0

    def unit_arrived(self) -> None:
        """A unit is read, so there may be another question."""
        self._units += 1

    async def answer(self, question: bytes) -> bytes:
        """The line with the answer to a line with a question. Raises :class:`DocumentFailure`."""
        self._questions += 1
        # A child that asks again and again would only cost money.
        if ENGINES[self._spec.engine].model is None or self._questions > self._units + 1:
            raise DocumentFailure(Code.CHILD_CRASHED, detail="a question that is not expected")
        if self._child is None:
            self._child = Child(self._options.memory, self._options.longest_message)
            await self._child.start(_program("child.caller"), self._environment())
            await self._child.give(spec_line(self._spec))
        await self._child.give(question + b"\n")
        line = await self._child.next_line()
        if line is None:
            raise await self._child.failure()
        match _message(line):
            case Answer():
                return line + b"\n"
            case Failed() as failed:
                raise _failure(failed)
            case _:
                raise DocumentFailure(Code.CHILD_CRASHED, detail="a message that is not an answer")

    async def end(self) -> None:
        """End the process, if it was started."""
        if self._child is not None:
            await self._child.end()

    def _environment(self) -> dict[str, str]:
        key = ENGINES[self._spec.engine].key
        keys = {name: value for name, value in self._options.environment.items() if name == key}
        return _environment(_INHERITED_BY_THE_CALLER) | keys


async def _follow(
    child: Child,
    caller: _Caller,
    options: ChildOptions,
    on_message: Callable[[Plan | Unit | Stage], Awaitable[None]],
) -> None:
    """Pass the child's messages on, until Finished or Failed."""
    loop = asyncio.get_running_loop()
    silence, most = options.unit_timeout.total_seconds(), options.total_timeout.total_seconds()
    end = loop.time() + most
    while True:
        left = end - loop.time()
        try:
            async with asyncio.timeout(min(silence, left)):
                line = await child.next_line()
                message = None if line is None else await _read(line, options.longest_message)
                if line is not None and isinstance(message, Question):
                    await _answer(child, caller, line)
        except TimeoutError:
            why = f"not done after {most:g} s" if left <= silence else f"nothing new for {silence:g} s"
            raise DocumentFailure(Code.TIMEOUT, detail=why) from None
        match message:
            case None:
                raise await child.failure()
            case Finished():
                return
            case Failed():
                raise _failure(message)
            case Plan() | Unit() | Stage():
                if isinstance(message, Unit):
                    caller.unit_arrived()
                await on_message(message)
            case Answer():
                raise DocumentFailure(Code.CHILD_CRASHED, detail="a message that is not expected")


async def _answer(child: Child, caller: _Caller, question: bytes) -> None:
    """Give the child the answer to its question. A child that ends meanwhile gets none."""
    asking, ending = asyncio.ensure_future(caller.answer(question)), asyncio.ensure_future(child.ended())
    try:
        await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            await child.give(asking.result())
    finally:
        asking.cancel()
        ending.cancel()
        await asyncio.gather(asking, ending, return_exceptions=True)


async def _read(line: bytes, longest: int) -> Message:
    """The message. A long one is read in a thread. Only a question may be longer than ``longest``."""
    message = await asyncio.to_thread(_message, line) if len(line) > _READ_IN_THREAD else _message(line)
    if len(line) > longest and not isinstance(message, Question):
        raise too_large(Cap.PAGE, longest)
    return message


def _message(line: bytes) -> Message:
    try:
        return decoded(line)
    except (ValueError, TypeError, RecursionError):
        # The line is left out of the failure: it may be a piece of the document.
        raise DocumentFailure(Code.CHILD_CRASHED, detail="a line that is not a message") from None


def _failure(failed: Failed) -> DocumentFailure:
    """The failure that the child sent. Its texts are masked like all texts from outside."""
    message, detail = _masked(failed.message), _masked(failed.detail)
    try:
        code = Code(failed.code)
    except ValueError:
        code, detail = Code.UNEXPECTED, "a code that is not in the table"
    after: object = failed.retry_after
    if isinstance(after, (int, float)) and math.isfinite(after) and after >= 0:
        return DocumentFailure(code, message, detail, retry_after=timedelta(seconds=min(after, _LONGEST_WAIT)))
    return DocumentFailure(code, message, detail)


def _masked(text: object) -> str | None:
    # The child reads files from outside, so the types of its fields are not trusted.
    return scrub(text) if isinstance(text, str) and text else None


def _program(module: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", f"{__package__}.{module}")


def _environment(others: Sequence[str] = ()) -> dict[str, str]:
    return {name: os.environ[name] for name in (*_INHERITED, *others) if name in os.environ} | _SET
