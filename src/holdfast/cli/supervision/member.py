"""One child process: how its parent sees it, and the child's side, with what it inherits and its ready message."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Final, Self

from holdfast.contracts.errors import ConfigurationError

READY: Final = b"R"
_PR_SET_PDEATHSIG: Final = 1
_PARENT_GONE: Final = 1


def keep_private(descriptor: int) -> int:
    """The inherited descriptor. Processes that a workload starts no longer inherit it."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError as error:
        message = "--lifeline and --listener are for processes that `--processes` starts."
        raise ConfigurationError(message) from error
    return descriptor


def end_with_parent(descriptor: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent ends. End now if the parent has ended already.

    The lifeline alone is not enough: nobody looks at it while the process starts. SIGTERM ends a starting process at
    once, and a running process in order (I17).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have ended before that call. Its process id does not tell: in a container, it may be 1 all along.
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    if looking.poll(0):  # the parent writes nothing: the lifeline is closed
        raise SystemExit(_PARENT_GONE)


def inherited_listener(descriptor: int) -> socket.socket:
    """The listening socket that the parent opened."""
    return socket.socket(fileno=keep_private(descriptor))


def tell_ready(descriptor: int) -> None:
    """Send the ready message to the parent. A missing parent is no error here: the process notices it elsewhere."""
    with contextlib.suppress(OSError):
        os.write(descriptor, READY)


COMMAND: Final = (sys.executable, "-m", "holdfast")


@dataclass(frozen=True, slots=True)
class Duty:
    """How to start a process: its name in the log, its command line, and the socket it inherits."""

    name: str
    arguments: tuple[str, ...]
    listener: socket.socket | None = None
    program: tuple[str, ...] = COMMAND


class Member:
    """A process that we started; belongs to the running event loop."""

    def __init__(self, duty: Duty, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self.duty = duty
        self._process = process
        self._link = link
        self._ready_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting_for_ready = self._loop.create_task(self._read_ready())
        self._exit: asyncio.Future[int] = self._loop.create_future()
        # Not asyncio's own processes: before Python 3.12, they lose the exit code if a signal is sent at the end.
        threading.Thread(target=self._wait, name=f"wait for {duty.name} {process.pid}", daemon=True).start()

    @classmethod
    def start(cls, duty: Duty) -> Self:
        """Start a process for this duty."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        inherited = {"--lifeline": theirs.fileno()}
        if duty.listener is not None:
            inherited["--listener"] = duty.listener.fileno()
        options = [text for name, descriptor in inherited.items() for text in (name, str(descriptor))]
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - our own program, or what a test names
                    [*duty.program, *duty.arguments, *options],
                    stdin=subprocess.DEVNULL,
                    pass_fds=tuple(inherited.values()),
                    # Ctrl-C in the terminal must reach only the parent, which stops its children in order.
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return cls(duty, process, ours)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet, as far as we know."""
        return not self._exit.done()

    @property
    def was_ready(self) -> bool:
        """Whether the process sent its ready message."""
        return self._ready_at is not None

    @property
    def ready_for(self) -> float:
        """Seconds since the ready message; 0 if there was none."""
        return 0.0 if self._ready_at is None else self._loop.time() - self._ready_at

    async def came_up(self) -> bool:
        """Wait until the process is ready; False if it ended before."""
        await asyncio.wait({self._waiting_for_ready})
        return self.was_ready

    async def ended(self) -> int:
        """Wait for the exit code; negative: the number of the signal that ended the process."""
        code = await asyncio.shield(self._exit)
        self._waiting_for_ready.cancel()
        await asyncio.wait({self._waiting_for_ready})
        self._link.close()  # not before: when the link closes, the child believes that its parent is gone
        return code

    def terminate(self) -> None:
        """Send SIGTERM: the process drains and ends."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    async def _read_ready(self) -> None:
        with contextlib.suppress(ConnectionError):
            if await self._loop.sock_recv(self._link, len(READY)) == READY:
                self._ready_at = self._loop.time()

    def _wait(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the exit code
            self._loop.call_soon_threadsafe(self._exit.set_result, code)
