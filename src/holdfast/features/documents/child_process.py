"""The child process as the worker sees it: its lines, its memory, and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from holdfast import scrub

from .child.confinement import MOST_THREADS, hide_secrets
from .child.limits import is_out_of_memory
from .failures import Code, DocumentFailure
from .units import Cap, too_large

_CHECK_EVERY: Final = 0.1
"""Seconds between checks of the child's memory and threads."""
_NEAR: Final = 0.1
_ROOM: Final = 128 * 1024 * 1024
"""A child that ended without a message, and had less than this share of its memory left or less than so many bytes,
ran out of memory. Native libraries often just crash when memory is refused, and request a hundred megabytes at a
time."""
_GRACE: Final = 2.0
"""Seconds in which a child that closed its output has to end."""
_READ_SIZE: Final = 256 * 1024
_KEPT_ERRORS: Final = 4096
_MEGABYTE: Final = 1024 * 1024


class Child:
    """One child process. :meth:`end` must always be awaited.

    The child is not started with the event loop's own functions. asyncio waits for the end of a process while any other
    process holds its pipes. uvloop gives the child our open files and more ends of its own pipes. Both read ahead
    without limit when no line is taken.
    """

    def __init__(self, memory: int | None, longest_line: int) -> None:
        """``longest_line`` is the most bytes of one message. A child that writes more is killed."""
        self._loop = asyncio.get_running_loop()
        self._memory = memory
        self._longest_line = longest_line
        self._process: subprocess.Popen[bytes] | None = None
        self._output = _Pipe(self._on_output, self._wake)
        self._error_output = _Pipe(self._on_error_output, self._wake)
        self._lines: deque[bytes] = deque()
        self._unfinished = bytearray()
        self._errors = b""
        self._news = asyncio.Event()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._reaping = threading.Lock()
        self._reaped = False
        self._next_check: asyncio.TimerHandle | None = None
        self._taken = 0
        self._killed_for: DocumentFailure | None = None

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the child as the leader of its own session, so that every process it starts can be killed with it."""
        hide_secrets()
        try:
            self._process = process = _spawned(command, environment)
            for fd in range(3):
                os.set_blocking(self._file(fd).fileno(), False)
        except OSError as error:
            why = f"it cannot be started ({errno.errorcode.get(error.errno or 0, 'EIO')})"
            raise DocumentFailure(Code.CHILD_CRASHED, detail=why) from None
        try:
            threading.Thread(target=self._await_end, args=(process,), name="documents-child", daemon=True).start()
        except RuntimeError:
            # The system has no more threads. Without one, the child's end would not be noticed.
            _kill_group(process.pid)
            self._await_end(process)
            raise DocumentFailure(Code.CHILD_CRASHED, detail="it cannot be watched: no more threads") from None
        for pipe, fd in ((self._output, 1), (self._error_output, 2)):
            pipe.open(self._file(fd).fileno())
        self._check()

    async def give(self, line: bytes) -> None:
        """Write a line to the child's standard input, which stays open: when it closes, the child ends itself.

        This waits while the child does not read.
        """
        pipe, left = self._file(0).fileno(), memoryview(line)
        # If the child has already ended, :meth:`failure` finds out why.
        with suppress(BrokenPipeError):
            while left:
                try:
                    left = left[os.write(pipe, left) :]
                except BlockingIOError:
                    await self._until_writable(pipe)

    async def next_line(self) -> bytes | None:
        """The next line of the child's output. None: there will be no more."""
        while not self._lines:
            if self._output.ended:
                return None
            if not self._exited.done():
                self._output.resume()
                self._news.clear()
                await self._news.wait()
            # All that the child wrote is in the pipe, which a process that left the child's group may keep open.
            elif not self._output.read():
                return None
        return self._lines.popleft()

    async def ended(self) -> None:
        """Wait until the child has ended."""
        await asyncio.wait({self._exited})

    async def failure(self) -> DocumentFailure:
        """Why the child ended without a last message."""
        await asyncio.wait({self._exited}, timeout=_GRACE)
        if self._killed_for is not None:
            return self._killed_for
        if not self._exited.done():
            return DocumentFailure(Code.CHILD_CRASHED, detail="it closed its output and went on")
        self._error_output.read()
        errors = self._errors.decode("utf-8", "replace")
        ending = _ending(self._running.returncode)
        if is_out_of_memory(errors) or self._was_nearly_full():
            return DocumentFailure(Code.OUT_OF_MEMORY, detail=f"{ending}, with {self._of_memory()}")
        return DocumentFailure(Code.CHILD_CRASHED, detail=scrub("\n".join((ending, *_known_lines(errors)))))

    async def end(self) -> None:
        """Kill the child's group, and wait until the child has ended and its pipes are closed."""
        if self._process is None:
            return
        self._kill()
        try:
            await _wait_until_done(self._exited)
        finally:
            if self._next_check is not None:
                self._next_check.cancel()
            self._output.pause()
            self._error_output.pause()
            for fd in range(3):
                self._file(fd).close()

    async def _until_writable(self, pipe: int) -> None:
        writable = asyncio.Event()
        self._loop.add_writer(pipe, writable.set)
        try:
            await writable.wait()
        finally:
            self._loop.remove_writer(pipe)

    # --- events of the child ------------------------------------------------------------------------------------------

    def _on_output(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._unfinished) + whole[0]
            self._unfinished.clear()
        self._unfinished += rest
        if any(len(line) > self._longest_line for line in (self._unfinished, *whole)):
            self._output.end()
            self._kill_for(too_large(Cap.PAGE, self._longest_line))
            return
        self._lines.extend(whole)
        if whole:
            self._output.pause()
            self._wake()

    def _on_error_output(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_KEPT_ERRORS:]

    def _wake(self) -> None:
        self._news.set()

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        """In its own thread: wait for the child's end, and kill the processes that it started."""
        if hasattr(os, "waitid"):
            # Without reaping the child: no other process gets its number before its group is killed.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with self._reaping:
            _kill_group(process.pid)
            process.wait()
            self._reaped = True
        self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._exited.set_result(None)
        self._wake()

    def _check(self) -> None:
        """Check the child's memory and threads, again and again. The system's limits do not cover all of them."""
        if self._exited.done():
            return
        taken, resident, threads = _used_by(self._running.pid)
        # For a process that is ending, the system reports zero.
        self._taken = max(taken, resident) or self._taken
        if self._memory is not None and resident > self._memory:
            self._kill_for(DocumentFailure(Code.OUT_OF_MEMORY, detail=f"killed with {self._of_memory()}"))
        elif threads > MOST_THREADS:
            self._kill_for(DocumentFailure(Code.CHILD_CRASHED, detail=f"killed with more than {MOST_THREADS} threads"))
        else:
            self._next_check = self._loop.call_later(_CHECK_EVERY, self._check)

    def _kill_for(self, why: DocumentFailure) -> None:
        self._killed_for = self._killed_for or why
        self._kill()

    def _kill(self) -> None:
        with self._reaping:
            if not self._reaped:
                _kill_group(self._running.pid)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        return cast("subprocess.Popen[bytes]", self._process)

    def _file(self, fd: int) -> IO[bytes]:
        return cast("IO[bytes]", (self._running.stdin, self._running.stdout, self._running.stderr)[fd])

    def _was_nearly_full(self) -> bool:
        # No check was made, so nothing is known.
        if self._memory is None or not self._taken:
            return False
        return self._memory - self._taken < max(self._memory * _NEAR, _ROOM)

    def _of_memory(self) -> str:
        most = "" if self._memory is None else f" of {self._memory // _MEGABYTE}"
        return f"{self._taken // _MEGABYTE}{most} MB in use"


class _Pipe:
    """A pipe that the child writes to. ``ended``: nothing more comes."""

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._on_data = on_data
        self._on_end = on_end
        self._fd: int | None = None

    def open(self, fd: int) -> None:
        """Read this end of the pipe, which does not block."""
        self._fd = fd
        self.resume()

    def pause(self) -> None:
        """Stop reading for now. The child waits when the pipe is full."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read when the child writes."""
        if self._fd is not None and not self.ended:
            self._loop.add_reader(self._fd, self.read)

    def read(self) -> bool:
        """Read what is in the pipe. Returns False if there is nothing."""
        if self._fd is None or self.ended:
            return False
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:
            return False
        if data:
            self._on_data(data)
        else:
            self.end()
        return bool(data)

    def end(self) -> None:
        """Read no more."""
        self.pause()
        self.ended = True
        self._on_end()


def _spawned(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Not in another thread: the system kills the child when the thread that started it ends.
    return subprocess.Popen(  # noqa: S603 - our own program, or what a test names
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        start_new_session=True,
    )


def _kill_group(leader: int) -> None:
    # macOS raises EPERM for a group of which only a zombie is left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _wait_until_done(future: asyncio.Future[Any]) -> None:
    """Wait until the future is done, even when cancelled. A cancellation is raised afterwards."""
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


def _used_by(pid: int) -> tuple[int, int, int]:
    """The bytes of a process as its limit counts them, the bytes in memory that cannot be dropped, and its threads.

    Pages of files are not counted, because the system can take them back. Zeros when there is no /proc.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0, 0
    kilobytes = {name: int(amount) for name, amount in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.MULTILINE)}
    resident = kilobytes.get("RssAnon", 0) + kilobytes.get("RssShmem", 0)
    threads = re.search(r"^Threads:\s+(\d+)$", status, re.MULTILINE)
    return kilobytes.get("VmData", 0) * 1024, resident * 1024, int(threads[1]) if threads else 0


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"


_FRAME: Final = re.compile(r'^\s*File "(?:[^"]*/)?([^"/<>]+)", line (\d+),? in (<?\w+>?)$')
_OF_THE_WAITING: Final = ("threading.py", "protocol.py")
_KNOWN: Final = re.compile(
    r"^(?:Fatal Python error: [A-Z][a-z]+(?: [a-z]+){0,3}$"
    r"|terminate called after throwing an instance of '[\w:<>, ]+'$"
    r"|ModuleNotFoundError: No module named '[\w.]+'$"
    r"|(?:\w+\.)*\w+(?:Error|Exception|Warning)(?=:|$)"
    r"|(?:free|malloc|munmap_chunk|realloc|corrupted|double free)[\w ()]*+[:a-z ]*$)"
)


def _known_lines(errors: str) -> list[str]:
    """The lines that describe a crash: kinds of errors, and places in the code.

    Any other line of standard error may quote the document, and is left out (I14).
    """
    kept = []
    for line in errors.splitlines():
        if frame := _FRAME.match(line):
            # The thread that waits for the worker's end is in every dump.
            if frame[1] not in _OF_THE_WAITING:
                kept.append(f"{frame[1]}:{frame[2]} in {frame[3]}")
        elif known := _KNOWN.match(line):
            kept.append(known[0])
    return kept
