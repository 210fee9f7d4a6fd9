"""A server process that we started. It can be stopped, paused, killed, and started again with the same data."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.cli.unwinding import signals_wait

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 45.0
_LOOK_EVERY: Final = 0.02
_TAIL_BYTES: Final = 2_000


class ServerMissing(Exception):
    """The program of a server is not installed, or does not start."""


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One server on one port of the loopback, with its data in ``folder``. ``options`` are those of ``Popen``."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, port: int, **options: Any) -> None:  # noqa: ANN401 - as Popen takes them
        self.name = name
        self.folder = folder
        self.port = port
        self.log_file = folder / f"{name}-{port}.log"
        self._command = list(command)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of a server that was started."""
        if self._process is None:
            message = f"{self.name} was not started."
            raise ServerMissing(message)
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log_file.open("ab") as log, signals_wait():
            # A new session: Ctrl-C in the terminal must reach only us, and we stop the server.
            options: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True} | self._options
            self._process = subprocess.Popen(  # noqa: S603 - a fixed program and our own arguments
                self._command, stdin=subprocess.DEVNULL, cwd=self.folder, **options
            )
        self.wait_for(self.answers, "answer")

    def answers(self) -> bool:
        """Whether the server accepts connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition is true; on a timeout, raise with the end of the log."""
        end = time.monotonic() + _START_SECONDS
        while not condition():
            if not self.running or time.monotonic() > end:
                ended = "" if self.running else f" ended with exit code {self.stop()}, and"
                self.kill()
                message = f"{self.name}{ended} did not {what}. Its log ends with:\n{self.log_tail()}"
                raise ServerMissing(message)
            time.sleep(_LOOK_EVERY)

    def stop(self) -> int | None:
        """Ask it to stop and wait for its end; returns the exit code. None: it was not started."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the process: its port still accepts connections, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """The end of the server's log."""
        with contextlib.suppress(OSError):
            return self.log_file.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        return ""

    def _end(self, number: signal.Signals) -> int | None:
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a frozen process does not get SIGTERM
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_SECONDS)
            finally:  # also when a second Ctrl-C ends the wait
                process.kill()
                process.wait()
        return process.returncode
