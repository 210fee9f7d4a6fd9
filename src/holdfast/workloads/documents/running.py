"""Keeping the child process that reads one document: nothing that happens in it costs more than one attempt.

A crash, an endless loop or a want of memory in the child becomes a :class:`DocumentFailure` that says so. Whichever way
the keeping ends, also by cancellation, the child's whole process group is killed and its end awaited first: no
process, no zombie and no pipe is left. Should the worker itself be killed, the child sees its standard input end, and
ends too.
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

from holdfast.contracts.redaction import scrub

from .child.protocol import Failed, Finished, Message, Plan, Spec, Stage, Unit, decoded, spec_line
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
"""All that the child sees of the worker's environment, where its secrets are."""

_LONGEST_WAIT: Final = 24 * 3600.0
"""Seconds. A model that asks for more patience than this is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOptions:
    """What the child may have. ``memory`` is in bytes; None: as much as there is.

    ``unit_timeout`` is the longest silence between two messages, ``total_timeout`` the longest attempt.
    ``environment`` is what the child sees besides PATH and its like; a key for its engine is in there.
    """

    memory: int | None
    unit_timeout: timedelta
    total_timeout: timedelta
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


async def read_in_child(
    spec: Spec,
    options: ChildOptions,
    on_message: Callable[[Plan | Unit | Stage], Awaitable[None]],
    command: Sequence[str] | None = None,
) -> None:
    """Have a child process read the document; ``on_message`` is awaited for each message, in order.

    The child waits while ``on_message`` is slow. Returns when all is read; raises :class:`DocumentFailure` otherwise.
    """
    child = Child(options.memory)
    try:
        await child.start(command or (sys.executable, "-P", "-m", f"{__package__}.child"), _environment(options))
        child.give(spec_line(replace(spec, memory=options.memory)))
        await _follow(child, options, on_message)
    finally:
        await child.end()


async def _follow(
    child: Child, options: ChildOptions, on_message: Callable[[Plan | Unit | Stage], Awaitable[None]]
) -> None:
    """Pass on what the child says, up to its last word."""
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
        match _message(line):
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
        # The line is not told: it may be a piece of the document.
        raise DocumentFailure(Code.CHILD_CRASHED, detail="a line that is not a message") from None


def _failure(failed: Failed) -> DocumentFailure:
    """The failure that the child tells of. Its words are masked as all words from outside are."""
    message, detail = _words(failed.message), _words(failed.detail)
    try:
        code = Code(failed.code)
    except ValueError:
        code, detail = Code.UNEXPECTED, "a code that is not in the table"
    after: object = failed.retry_after
    if isinstance(after, (int, float)) and math.isfinite(after) and after >= 0:
        return DocumentFailure(code, message, detail, retry_after=timedelta(seconds=min(after, _LONGEST_WAIT)))
    return DocumentFailure(code, message, detail)


def _words(text: object) -> str | None:
    # The child reads what external producers send: its types are not taken on trust.
    return scrub(text) if isinstance(text, str) and text else None


def _environment(options: ChildOptions) -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(options.environment)
