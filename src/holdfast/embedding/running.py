"""One start of a :class:`~holdfast.embedding.Holdfast`: the open system, and the worker and maintenance in it.

Everything is opened, run and closed by one task of its own, so a cancellation of the caller's task never cuts a drain
short. Nothing here touches what belongs to the program: no signal handlers, no settings of the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from holdfast.config import Settings, SettingsError, load
from holdfast.contracts.app import App
from holdfast.contracts.errors import ConfigurationError, message_of
from holdfast.contracts.redaction import scrub
from holdfast.contracts.submissions import NotRunning
from holdfast.installed import settings_model
from holdfast.telemetry import emit_failure, events
from holdfast.telemetry.standard_logging import LOGGER, logged
from holdfast.wiring import STORE_PATIENCE, System, open_system


class Running:
    """The system of one start. :meth:`start` opens it, and :meth:`stop` drains and closes it."""

    def __init__(self, settings: Settings, app: App, *, worker: bool, maintenance: bool) -> None:
        self._settings = settings
        self._app = app
        self._parts = (worker, maintenance)
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[System] = self._loop.create_future()
        self._stopping = asyncio.Event()
        self._drained = False
        self._failure: Exception | None = None
        self._calls = 0
        self._no_calls = asyncio.Event()
        self._no_calls.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether calls are answered. They are until the worker has drained: a job in work may call, too."""
        return self._opened.done() and self._failure is None and not self._drained

    @property
    def failure(self) -> Exception | None:
        """Why the worker or maintenance ended before it was told to."""
        return self._failure

    # --- starting and stopping ----------------------------------------------------------------------------

    async def start(self) -> System:
        """Open the system and start its parts. Returns when every workload has started, or raises the reason."""
        self._task = self._loop.create_task(self._run(), name="holdfast")
        try:
            await _first(self._opened, self._task)
        except asyncio.CancelledError:
            if not self._opened.done():
                self._task.cancel()  # it may wait for a server, and no job runs yet
            await self.stop()
            raise
        if not self._opened.done():
            await self._task  # raises the reason
        return self._opened.result()

    async def stop(self) -> None:
        """Drain as ``holdfast worker`` does (I17), and close. A cancellation waits until this is done."""
        self._stopping.set()
        cancelled: asyncio.CancelledError | None = None
        while self._task is not None and not self._task.done():
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        if self._task is not None and not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        with logged():
            for warning in self._settings.warnings:
                LOGGER.warning("%s", warning)
            async with open_system(self._settings, self._app, patience=STORE_PATIENCE) as system:
                try:
                    await self._work(system)
                finally:
                    self._drained = True
                    system.waiting.stop()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._drain.total_seconds()):
                        await self._no_calls.wait()

    async def _work(self, system: System) -> None:
        """Run the parts until :meth:`stop`. If they fail, keep the system open until then: calls are refused."""
        started = asyncio.Event()
        working = self._loop.create_task(self._parts_of(system, started))
        starting = self._loop.create_task(started.wait())
        try:
            await _first(working, starting)
            if working.done() and not started.is_set():
                _raise_one(working)
            self._opened.set_result(system)
            await asyncio.wait({working})
        finally:
            for task in (starting, working):
                task.cancel()
            await asyncio.gather(starting, working, return_exceptions=True)
        try:
            _raise_one(working)
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller from now on gets it as the cause
            emit_failure(events.WORKER_FAULT, error, where="embedding")
            self._failure = error
            system.waiting.stop()
            await self._stopping.wait()

    async def _parts_of(self, system: System, started: asyncio.Event) -> None:
        worker, maintenance = self._parts
        if worker:
            await system.worker(maintenance=maintenance).run(self._stopping, started)
            return
        started.set()
        if maintenance:
            await system.maintenance(alone=True).run(self._stopping)
        else:
            await self._stopping.wait()

    @property
    def _drain(self) -> timedelta:
        return timedelta(milliseconds=self._settings.worker_drain_timeout_ms)

    # --- calls --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def call(self) -> Iterator[System]:
        """The system, for one call. The system stays open until the call ends, for the drain time at most.

        Raises :class:`NotRunning` if the system is not open for calls.
        """
        self.check()
        self._calls += 1
        self._no_calls.clear()
        try:
            yield self._opened.result()
        finally:
            self._calls -= 1
            if not self._calls:
                self._no_calls.set()

    def check(self) -> None:
        """Raise :class:`NotRunning` if the system is not open for calls."""
        if asyncio.get_running_loop() is not self._loop:
            message = "This Holdfast runs in another event loop; from a thread, use asyncio.run_coroutine_threadsafe."
            raise NotRunning(message)
        if self._failure is not None:
            name, reason = type(self._failure).__name__, scrub(message_of(self._failure))
            message = f"The worker of this Holdfast has failed: {name}: {reason}"
            raise NotRunning(message) from self._failure
        if not self.open:
            message = "This Holdfast has stopped."
            raise NotRunning(message)


async def _first(*futures: asyncio.Future[Any]) -> None:
    """Return when one of them is done. A cancellation of this does not cancel them."""
    await asyncio.wait(set(futures), return_when=asyncio.FIRST_COMPLETED)


def _raise_one(task: asyncio.Task[None]) -> None:
    """Raise the error of the task, if it has one. An error that is alone in its group is raised by itself."""
    try:
        task.result()
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


def settings_of(app: App, data: str | Path | None, given: Settings | Mapping[str, Any] | None) -> Settings:
    """The settings as the program ``holdfast`` loads them; what is ``given`` by name has priority over all.

    Raises :class:`ConfigurationError` with every problem.
    """
    model = settings_model(app)
    if isinstance(given, Settings):
        values: dict[str, Any] = {name: getattr(given, name) for name in given.model_fields_set}
        if data is not None:
            values["holdfast_data"] = Path(data)
        return given if data is None and isinstance(given, model) else model(**values)
    overlay = {name: value for name, value in (given or {}).items() if value is not None}
    if data is not None:
        overlay["holdfast_data"] = data
    if not str(overlay.get("holdfast_data", "-")):
        message = "The data folder must have a name."
        raise ConfigurationError(message)
    unknown = sorted(name for name in overlay if name.lower() not in model.model_fields)
    if unknown:
        message = f"There is no setting {', '.join(unknown)}. `holdfast config show` lists the names."
        raise ConfigurationError(message)
    texts = {name.upper(): _text(value) for name, value in overlay.items()}
    try:
        return load({**os.environ, **texts}, model=model)
    except SettingsError as error:
        raise ConfigurationError(" ".join(error.problems)) from None


def _text(value: Any) -> str:  # noqa: ANN401 - a setting of any type
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else str(value)
