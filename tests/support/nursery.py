"""Where gateway processes of tests come from: a process that has imported everything already, and forks.

Most of what a short-lived gateway costs is its imports, and kill tests start hundreds of them. What comes out of here
is a process of its own in every other way: it has its own id, session, environment, descriptors and end. That the
program also starts from nothing is what the tests of the command line show.

``python -m tests.support.nursery FD`` is the process. :class:`Nursery` is its client, one for each pytest process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_LONGEST: Final = 1 << 20


class Child:
    """A process that was forked. Its first line can be read; closing ``talk`` ends it."""

    def __init__(self, pid: int, handle: int, status: socket.socket, talk: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """Negative: the number of the signal that ended it."""
        self._handle = handle
        self._status = status
        self._talk = talk
        self._speaking = asyncio.create_task(self._speak())
        self._ending = asyncio.create_task(self._end())

    async def first_line(self) -> bytes:
        """What it says first; nothing when it ended before it spoke."""
        return await asyncio.shield(self._speaking)

    def signal(self, number: signal.Signals) -> None:
        """Never reaches an external producer with a recycled id: the handle is of this process and no other."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    async def wait(self) -> int:
        """The exit code, once there is one."""
        return await asyncio.shield(self._ending)

    async def _speak(self) -> bytes:
        loop = asyncio.get_running_loop()
        said = b""
        with contextlib.suppress(ConnectionError):
            while not said.endswith(b"\n") and (more := await loop.sock_recv(self._talk, 4096)):
                said += more
        return said

    async def _end(self) -> int:
        try:
            told = await asyncio.get_running_loop().sock_recv(self._status, 64)
            assert told, "the nursery ended before its child"
            self.returncode = int(told)
            await self._speaking  # the dead may have spoken before
            return self.returncode
        finally:
            os.close(self._handle)
            self._status.close()
            self._talk.close()


class Nursery:
    """The process to fork from. It ends with the process that started it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._one_at_a_time = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        self._control.close()
        self._process.wait()

    async def start(self, environment: Mapping[str, str], roles: Sequence[str], log: Path) -> Child:
        """Fork a gateway with these roles and no other environment than this; its standard error goes to the log."""
        status, their_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        talk, their_talk = socket.socketpair()
        request = json.dumps({"environment": dict(environment), "roles": list(roles)}).encode()
        with their_status, their_talk, log.open("wb") as errors:
            theirs = [their_talk.fileno(), errors.fileno(), their_status.fileno()]
            await asyncio.to_thread(self._send, request, theirs)
        told, handles, _, _ = await asyncio.to_thread(socket.recv_fds, status, 64, 1)
        assert told, "the nursery ended; why is on standard error"
        status.setblocking(False)
        talk.setblocking(False)
        return Child(int(told), handles[0], status, talk)

    def _send(self, request: bytes, descriptors: Sequence[int]) -> None:
        with self._one_at_a_time:
            socket.send_fds(self._control, [request], descriptors)


@functools.cache
def nursery() -> Nursery:
    """The one of this pytest process, started when it is first asked for."""
    return Nursery()


# --- the process itself ---------------------------------------------------------------------------------------------


def main() -> None:
    """Import, fork when asked to, and report how children ended. A child goes on as a gateway."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    gc.collect()
    gc.freeze()  # a child's collector leaves the pages of its elders alone
    if (roles := _attend(control)) is not None:
        from tests.support import run_gateway

        run_gateway.main(roles)


def _import_everything() -> None:
    """All that some gateway needs, and what FastAPI looks for when it is given its first route."""
    for name in (
        "holdfast.api.app",
        "holdfast.brokers.bullmq",
        "holdfast.stores.mongo",
        "holdfast.wiring.serving",
        "holdfast.features.courier.downstream",
        "holdfast.features.documents.admission",
        "holdfast.blobs.folder",
        "holdfast.features.documents.workload",
        "holdfast.features.email.admission",
        "holdfast.features.email.notifications",
        "holdfast.features.email.transports.smtp",
        "holdfast.features.email.workload",
        "pydantic.v1",
        "uvicorn.lifespan.off",
        "uvicorn.protocols.http.httptools_impl",
    ):
        importlib.import_module(name)


def _attend(control: socket.socket) -> list[str] | None:
    """Fork and report until the client is gone. In a child: its roles."""
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the wakeup descriptor hears of it
    signal.set_wakeup_fd(waker.fileno())
    living: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                _report_the_dead(living)
            if control in ready:
                request, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 3)
                if not request:
                    return None
                asked = json.loads(request)
                if pid := os.fork():
                    _announce(pid, descriptors, living)
                    continue
                selector.close()
                for each in (control, woken, waker, *living.values()):
                    each.close()
                _become(asked, descriptors)
                return asked["roles"]


def _announce(pid: int, descriptors: Sequence[int], living: dict[int, socket.socket]) -> None:
    *others, status = descriptors
    for each in others:
        os.close(each)
    living[pid] = socket.socket(fileno=status)
    handle = os.pidfd_open(pid)  # it cannot have been reaped yet
    try:
        socket.send_fds(living[pid], [str(pid).encode()], [handle])
    finally:
        os.close(handle)


def _report_the_dead(living: dict[int, socket.socket]) -> None:
    while living:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with living.pop(pid) as told, contextlib.suppress(ConnectionError):
            told.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(asked: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """What a process that was started afresh would be: its session, descriptors, signals and environment."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    talk, errors, status = descriptors
    for source, target in ((talk, 0), (talk, 1), (errors, 2)):
        os.dup2(source, target)
    for each in (talk, errors, status):
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["environment"])


if __name__ == "__main__":
    main()
