"""One child process, as its parent sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Final, Self

from .lifeline import READY

COMMAND: Final = (sys.executable, "-m", "holdfast")


@dataclass(frozen=True, slots=True)
class Duty:
    """What a process is for: its name in the log, its command line, and the socket it inherits."""

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
        self._hearing = self._loop.create_task(self._hear())
        self._exit: asyncio.Future[int] = self._loop.create_future()
        # Not asyncio's own processes: before Python 3.12, one that ends while it is sent a signal loses its exit code.
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
                    # A Ctrl-C in the terminal is the parent's to act on: it stops its children in order.
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
        """Whether it has not ended yet, as far as we have heard."""
        return not self._exit.done()

    @property
    def was_ready(self) -> bool:
        """Whether it has told that it is ready."""
        return self._ready_at is not None

    @property
    def ready_for(self) -> float:
        """Seconds since it was ready; 0 if it never was."""
        return 0.0 if self._ready_at is None else self._loop.time() - self._ready_at

    async def came_up(self) -> bool:
        """Wait until it is ready; False when it ended before."""
        await asyncio.wait({self._hearing})
        return self.was_ready

    async def ended(self) -> int:
        """The exit code, once there is one; negative: the number of the signal that ended it."""
        code = await asyncio.shield(self._exit)
        self._hearing.cancel()
        await asyncio.wait({self._hearing})
        self._link.close()  # not before: the child takes the end of this link for the end of its parent
        return code

    def terminate(self) -> None:
        """Ask it to stop: it drains and ends."""
        self._process.terminate()

    def kill(self) -> None:
        """End it without warning."""
        self._process.kill()

    async def _hear(self) -> None:
        with contextlib.suppress(ConnectionError):
            if await self._loop.sock_recv(self._link, len(READY)) == READY:
                self._ready_at = self._loop.time()

    def _wait(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody asks any more
            self._loop.call_soon_threadsafe(self._exit.set_result, code)
