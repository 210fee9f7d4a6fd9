"""Keeping the child process that reads one document: nothing that happens in it costs more than one attempt.

A crash, an endless loop or a want of memory in the child becomes a :class:`DocumentFailure` that says so. Whichever way
the keeping ends, also by cancellation, the child's whole process group is killed and its end awaited first: no
process, no zombie and no pipe is left. Should the worker itself be killed, the child sees its standard input end, and
ends too.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from holdfast.contracts.redaction import scrub

from .child.limits import says_no_memory
from .child.protocol import Failed, Finished, Message, Plan, Spec, Stage, Unit, decoded, spec_line
from .failures import Code, DocumentFailure

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes. A message is never so long: a child that writes more has lost its mind."""

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

_LOOK_EVERY: Final = 0.2
"""Seconds between looks at the child's memory."""
_NEAR: Final = 0.9
"""A child that ends without a word with so much of its memory taken, ended for want of it."""
_GRACE: Final = 2.0
"""Seconds in which a child that closed its output has to end, and the output of a child that ended has to close."""
_KEPT_ERRORS: Final = 4096
_LONGEST_WAIT: Final = 24 * 3600.0
"""Seconds. A model that asks for more patience than this is not believed."""
_MEGABYTE: Final = 1024 * 1024


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
    child = _Child(options.memory)
    try:
        await child.start(command or (sys.executable, "-P", "-m", f"{__package__}.child"), _environment(options))
        child.give(spec_line(replace(spec, memory=options.memory)))
        await _follow(child, options, on_message)
    finally:
        await child.end()


async def _follow(
    child: _Child, options: ChildOptions, on_message: Callable[[Plan | Unit | Stage], Awaitable[None]]
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
            raise await child.verdict()
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
    # The child reads what strangers send: its types are not taken on trust.
    return scrub(text) if isinstance(text, str) and text else None


def _environment(options: ChildOptions) -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(options.environment)


class _Child(asyncio.SubprocessProtocol):
    """The child process as the worker sees it: its lines, its memory, and its end.

    A protocol of its own and not :class:`asyncio.subprocess.Process`, whose ``wait`` hangs for as long as any process
    holds the pipes, and which reads ahead without end while nobody takes the lines.
    """

    def __init__(self, memory: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory = memory
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines: deque[bytes] = deque()
        self._unfinished = bytearray()
        self._errors = b""
        self._output_ended = False
        self._news = asyncio.Event()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._looking: asyncio.TimerHandle | None = None
        self._taken = 0
        self._killed_for: DocumentFailure | None = None

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it as the leader of a session of its own, so that all that it starts can be killed with it."""
        starting = self._loop.create_task(
            self._loop.subprocess_exec(lambda: self, *command, env=dict(environment), start_new_session=True)
        )
        try:
            await _surely(starting)
        except OSError as error:
            why = f"it cannot be started ({errno.errorcode.get(error.errno or 0, 'EIO')})"
            raise DocumentFailure(Code.CHILD_CRASHED, detail=why) from None
        if self._memory is not None:
            self._look()

    def give(self, line: bytes) -> None:
        """Write a line to its standard input, which stays open: its end would tell the child that we are gone."""
        cast("asyncio.WriteTransport", self._pipe(0)).write(line)

    async def next_line(self) -> bytes | None:
        """The next line that it wrote. None: there will be no more."""
        while not self._lines:
            if self._output_ended:
                return None
            cast("asyncio.ReadTransport", self._pipe(1)).resume_reading()
            self._news.clear()
            try:
                # A process that left the group may hold on to the output of the child that started it.
                async with asyncio.timeout(_GRACE if self._exited.done() else None):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._lines.popleft()

    async def verdict(self) -> DocumentFailure:
        """Why it ended without a last word."""
        await asyncio.wait({self._exited}, timeout=_GRACE)
        if self._killed_for is not None:
            return self._killed_for
        if not self._exited.done():
            return DocumentFailure(Code.CHILD_CRASHED, detail="it closed its output and went on")
        errors = self._errors.decode("utf-8", "replace")
        ending = _ending(cast("int", self._started.get_returncode()))
        if says_no_memory(errors) or (self._memory is not None and self._taken >= self._memory * _NEAR):
            return DocumentFailure(Code.OUT_OF_MEMORY, detail=f"{ending}, with {self._of_memory()}")
        return DocumentFailure(Code.CHILD_CRASHED, detail=scrub("\n".join((ending, *_known_lines(errors)))))

    async def end(self) -> None:
        """Kill what is left of it, and wait until it is gone and its pipes are closed."""
        if self._transport is None:
            return
        if self._looking is not None:
            self._looking.cancel()
        if not self._exited.done():
            self._kill()
        try:
            await _surely(self._exited)
        finally:
            # An open end of a pipe, held by a process that left the group, must not hold up ours.
            orders = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
            if orders is not None and not orders.is_closing():
                orders.abort()
            self._transport.close()
            await _surely(self._gone)

    # --- what the event loop tells ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            self._errors = (self._errors + data)[-_KEPT_ERRORS:]
            return
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._unfinished) + whole[0]
            self._unfinished.clear()
        self._unfinished += rest
        if any(len(line) > LONGEST_LINE for line in (self._unfinished, *whole)):
            self._unfinished.clear()
            self._kill_for(DocumentFailure(Code.CHILD_CRASHED, detail=f"a line of more than {LONGEST_LINE} bytes"))
            return
        self._lines.extend(whole)
        if self._lines:
            cast("asyncio.ReadTransport", self._pipe(1)).pause_reading()
            self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - how it was lost says nothing
        if fd == 1:
            self._output_ended = True
            self._news.set()

    def process_exited(self) -> None:
        # What it started is left without a keeper. Its number is not given away for as long as its group has members.
        self._kill()
        self._exited.set_result(None)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - likewise
        self._gone.set_result(None)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _started(self) -> asyncio.SubprocessTransport:
        return cast("asyncio.SubprocessTransport", self._transport)

    def _pipe(self, fd: int) -> asyncio.BaseTransport:
        return cast("asyncio.BaseTransport", self._started.get_pipe_transport(fd))

    def _look(self) -> None:
        """Look how much memory it has, again and again. The system refuses it most of what is too much; not all."""
        if self._memory is None or self._exited.done():
            return
        taken, resident = _memory_of(self._started.get_pid())
        self._taken = max(taken, resident)
        if resident > self._memory:
            self._kill_for(DocumentFailure(Code.OUT_OF_MEMORY, detail=f"killed with {self._of_memory()}"))
            return
        self._looking = self._loop.call_later(_LOOK_EVERY, self._look)

    def _of_memory(self) -> str:
        most = "" if self._memory is None else f" of {self._memory // _MEGABYTE}"
        return f"{self._taken // _MEGABYTE}{most} MB in use"

    def _kill_for(self, why: DocumentFailure) -> None:
        self._killed_for = self._killed_for or why
        self._kill()

    def _kill(self) -> None:
        # macOS says EPERM for a group of which only a zombie is left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._started.get_pid(), signal.SIGKILL)


async def _surely(future: asyncio.Future[Any]) -> None:
    """Wait until it is done, come what may. A cancellation in the meantime is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    future.result()


def _memory_of(pid: int) -> tuple[int, int]:
    """What a process has taken, as its limit counts it, and what of that is really in memory and cannot be dropped.

    Pages of files are not counted: the system takes them back when it needs to. Zeros where there is no /proc.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0
    kilobytes = {name: int(amount) for name, amount in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.MULTILINE)}
    resident = kilobytes.get("RssAnon", 0) + kilobytes.get("RssShmem", 0)
    return kilobytes.get("VmData", 0) * 1024, resident * 1024


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


_FRAME: Final = re.compile(r'^\s*File "(?:[^"]*/)?([^"/]+)", line (\d+),? in (<?\w+>?)$')
_KNOWN: Final = re.compile(
    r"^(?:Fatal Python error: [A-Z][a-z]+(?: [a-z]+){0,3}$"
    r"|terminate called after throwing an instance of '[\w:<>, ]+'$"
    r"|ModuleNotFoundError: No module named '[\w.]+'$"
    r"|(?:\w+\.)*\w+(?:Error|Exception|Warning)(?=:|$)"
    r"|(?:free|malloc|munmap_chunk|realloc|corrupted|double free)[\w ()]*[:a-z ]*$)"
)


def _known_lines(errors: str) -> list[str]:
    """The lines that tell of a crash: kinds of errors, and places in the code.

    Anything else that was written to standard error may quote the document, and is not told (I14).
    """
    told = []
    for line in errors.splitlines():
        if frame := _FRAME.match(line):
            told.append(f"{frame[1]}:{frame[2]} in {frame[3]}")
        elif known := _KNOWN.match(line):
            told.append(known[0])
    return told
