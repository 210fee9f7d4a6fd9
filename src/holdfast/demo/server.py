"""The server of the demo: the real program, as a separate process, configured by its environment."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.cli.unwinding import signals_wait
from holdfast.config import Settings

from .folder import SOURCE, DemoFolder

COMMAND: Final = (sys.executable, "-m", "holdfast", "up", "--json")

SHORTENED: Final[dict[str, int]] = {
    "RETRY_BACKOFF_BASE_MS": 300,
    "COURIER_DOWNSTREAM_TIMEOUT_MS": 1_000,
    "WORKER_LEASE_SECONDS": 3,
    "UPKEEP_INTERVAL_MS": 250,
}
"""Settings that make any demo quick."""

MAX_ATTEMPTS: Final = 5

# Five processes on a busy machine need time to start.
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 45.0
_TAIL_LINES: Final = 15


class ServerFailed(Exception):
    """The server did not start, or ended by itself. ``log_tail`` is the end of its log."""

    def __init__(self, message: str, log_tail: str) -> None:
        super().__init__(message)
        self.log_tail = log_tail


@dataclass(frozen=True, slots=True)
class DemoSecrets:
    """The secrets of one run. They are not stored."""

    courier: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    operator: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    downstream: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)


def environment(
    base: Mapping[str, str],
    folder: DemoFolder,
    keys: DemoSecrets,
    downstream_url: str,
    deployment: Mapping[str, str],
) -> dict[str, str]:
    """The server's environment: our own without any setting of Holdfast, plus the demo's settings."""
    ours = {name.upper() for name in Settings.model_fields}
    inherited = {name: value for name, value in base.items() if name not in ours and not name.startswith("HOLDFAST_")}
    return inherited | {
        "HOLDFAST_DATA": str(folder.path),
        "HOLDFAST_DEMO": "true",
        "API_HOST": "127.0.0.1",
        "API_PORT": "0",
        "OPERATOR_TOKEN": keys.operator,
        "COURIER_SECRETS": json.dumps({SOURCE: [keys.courier]}),
        "COURIER_DOWNSTREAM_URL": downstream_url,
        "COURIER_DOWNSTREAM_SECRET": keys.downstream,
        "RETRY_MAX_ATTEMPTS": str(MAX_ATTEMPTS),
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "json",
        **deployment,
    }


class Server:
    """Starts, kills and stops the program. After :meth:`stop` none of its processes is left."""

    def __init__(self, folder: DemoFolder, environ: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self.parts: Mapping[int, str] = {}
        """The processes of the program, if it has several: the role of each, by process id."""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start the program and wait for its ready message; returns its address."""
        with self._folder.log.open("ab") as log, signals_wait():
            # In its own folder: a holdfast.toml in the current folder is not for the demo. The server inherits the
            # lock, so that no other demo empties the folder while the server runs, even if this demo is gone.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, or what a test names
                self._command,
                cwd=self._folder.path,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(self._folder.lock,),
            )
        try:
            return self._address(time.monotonic() + _START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """``kill -9``: no warning, no cleanup."""
        process = self._running()
        process.kill()
        process.wait()
        _close_output(process)

    def kill_worker(self, name: str) -> int:
        """``kill -9`` for the worker process with this name in attempts; returns its process id."""
        for pid, duty in self.parts.items():
            if duty == "worker" and f".{pid}_" in name:
                os.kill(pid, signal.SIGKILL)
                return pid
        message = f"{name} is none of the server's workers."
        raise ValueError(message)

    def stop(self) -> int | None:
        """Send SIGTERM and wait for the drain; SIGKILL after a timeout. Returns the exit code; None: not started."""
        process = self._process
        if process is None:
            return None
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_SECONDS)
        finally:  # also when a second Ctrl-C ends the wait
            if process.poll() is None:
                process.kill()
                process.wait()
            _close_output(process)
        return process.returncode

    def run(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run another command of the program, with the server's settings."""
        return subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self._folder.path,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            encoding="utf-8",
            timeout=seconds,
        )

    def log(self) -> str:
        """The server's whole log so far."""
        return self._folder.log.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """The last lines of the server's log."""
        try:
            lines = self.log().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_TAIL_LINES:])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            message = "The server has not been started."
            raise RuntimeError(message)
        return self._process

    def _address(self, deadline: float) -> str:
        """Read the program's output until the line with its address."""
        process = self._running()
        if process.stdout is None:
            message = "The server's output is not connected."
            raise RuntimeError(message)
        descriptor = process.stdout.fileno()
        printed = b""
        while (left := deadline - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                chunk = os.read(descriptor, 4096)
                if not chunk:
                    code = process.wait()
                    message = f"The server ended with exit code {code} before it was ready."
                    raise ServerFailed(message, self.log_tail())
                printed += chunk
            if (address := announced(printed)) is not None:
                self.parts = announced_parts(printed)
                return address
        message = f"The server was not ready within {_START_SECONDS:.0f} seconds."
        raise ServerFailed(message, self.log_tail())


def _close_output(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()


def announced(printed: bytes) -> str | None:
    """The address in a complete line of JSON; None if there is no such line yet."""
    for document in _documents(printed):
        if isinstance(address := document.get("address"), str):
            return address
    return None


def announced_parts(printed: bytes) -> dict[int, str]:
    """The processes in complete lines of JSON: the role of each, by process id."""
    return {
        each["pid"]: each["process"] for document in _documents(printed) for each in document.get("processes") or ()
    }


def _documents(printed: bytes) -> Iterator[Mapping[str, Any]]:
    for line in printed.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError):
            document = json.loads(line)
            if isinstance(document, dict):
                yield document
