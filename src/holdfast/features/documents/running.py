"""Running the child process that reads one document. A fault in the child costs at most one attempt.

A crash, an endless loop or a lack of memory in the child becomes a :class:`DocumentFailure` with its own code. However
the run ends, also by cancellation, the child's whole process group is killed and its end is awaited first: no process,
no zombie and no pipe is left. If the worker itself is killed, the child sees its standard input close, and ends too.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from holdfast import scrub

from .child.protocol import (
    Failed,
    Finished,
    Message,
    Plan,
    Spec,
    Stage,
    Unit,
    decoded,
    spec_line,
)
from .child_process import Child
from .failures import Code, DocumentFailure

_INHERITED: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""The child gets only these variables of the worker's environment, because the environment holds secrets."""

LONGEST_MESSAGE: Final = 2 * 1024 * 1024
"""Bytes of one message of the child, unless the options have another number. A dense page has a hundredth of it."""
_READ_IN_THREAD: Final = 64 * 1024
"""Bytes. Reading a longer message takes so long that the event loop would stand still meanwhile."""
_LONGEST_WAIT: Final = 24 * 3600.0
"""Seconds. A model's request for a longer wait is cut to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    """The child's limits. ``memory`` is in bytes; None: no limit.

    ``unit_timeout`` is the longest time between two messages, ``total_timeout`` the longest attempt.
    ``longest_message`` is the most bytes of one message, and so of one page. ``environment`` holds the child's
    variables besides PATH and the like, such as a key for its engine.
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
    child = Child(options.memory, options.longest_message)
    try:
        await child.start(command or (sys.executable, "-P", "-m", f"{__package__}.child"), _environment(options))
        child.give(spec_line(replace(spec, memory=options.memory)))
        await _follow(child, options, on_message)
    finally:
        await child.end()


async def _follow(
    child: Child, options: ChildOptions, on_message: Callable[[Plan | Unit | Stage], Awaitable[None]]
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
        except TimeoutError:
            why = f"not done after {most:g} s" if left <= silence else f"nothing new for {silence:g} s"
            raise DocumentFailure(Code.TIMEOUT, detail=why) from None
        if line is None:
            raise await child.failure()
        long = len(line) > _READ_IN_THREAD
        match await asyncio.to_thread(_message, line) if long else _message(line):
            case Finished():
                return
            case Failed() as failed:
                raise _failure(failed)
            case message:
                await on_message(message)


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


def _environment(options: ChildOptions) -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(options.environment)
