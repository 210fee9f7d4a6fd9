"""The worker of a test: the real executions and the real maintenance, one step at a time, and a way to vanish.

A worker that is killed does nothing more. Here it is stopped in the middle of a step: the point where it vanishes
raises :class:`Vanished`, its tasks are cancelled, and nothing that it sends reaches the store or the queue any more.
Unlike in a killed process, ``finally`` blocks of handlers run.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.workload import Workload
from holdfast.engine.execution import Execution, ExecutionOptions
from holdfast.engine.schedules import Schedules
from holdfast.wiring import System

_LOOK_AGAIN: Final = timedelta(milliseconds=2)
_LAST_WAIT: Final = timedelta(seconds=1)


class Vanished(asyncio.CancelledError):
    """The worker vanishes here."""


class Process:
    """Whether the process of a worker is still there."""

    def __init__(self) -> None:
        self.alive = True

    def check(self) -> None:
        """Raise :class:`Vanished` if the process is gone."""
        if not self.alive:
            raise Vanished


class _Link:
    """A port, as a process reaches it. A process that is gone reaches nothing."""

    def __init__(self, port: object, process: Process) -> None:
        self._port = port
        self._process = process

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the port has it
            self._process.check()
            return await found(*given, **named)

        return call


class SteppedExecution(Execution):
    """An execution that works on what is due now, and returns."""

    def __init__(self, workload: Workload[Any], system: System, options: ExecutionOptions, process: Process) -> None:
        super().__init__(workload, system.store, system.broker, system.ambient, options)
        self._process = process
        self._context.reporting.start()

    @property
    def jobs(self) -> list[str]:
        """The jobs in work, for a message."""
        return [f"{self._workload.name} {each.claim.key!r}" for each in self._running.values()]

    @property
    def waiting(self) -> int:
        """How many jobs in work wait for a permit of a limit. Only time gives it to them."""
        return self._context.limiter.waiting

    async def work_off(self) -> int:
        """Work until nothing is due and no handler runs, except those that wait for a permit.

        Returns how many jobs the queue has delivered.
        """
        taken = 0
        while True:
            came = await self._round(timedelta(0)) if self._free else 0
            taken += came
            if not came:
                if not self._busy:
                    await self._context.limiter.settle()
                    return taken
                await self._until_some_slot_is_free()

    @property
    def _free(self) -> bool:
        return len(self._running) < self._concurrency

    @property
    def _busy(self) -> bool:
        return len(self._running) > self.waiting

    async def _until_some_slot_is_free(self) -> None:
        """Return then; or when all that are in work wait for permits, which no event tells."""
        self._slot_freed.clear()
        while self._busy and not self._slot_freed.is_set():
            self._process.check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN.total_seconds()):
                    await self._slot_freed.wait()

    async def time_has_passed(self) -> None:
        """Renew the leases of jobs in work, and ask for permits again."""
        await self._renew_leases()
        self._context.limiter.look_again()

    async def look_for_cancellations(self) -> None:
        """Tell handlers whose jobs were cancelled."""
        await self._look_for_cancellations()

    async def vanish(self) -> None:
        """Stop all tasks. Nothing is settled, released or renewed any more, because the process is gone."""
        tasks = {each.task for each in self._running.values() if each.task is not None}
        for task in tasks:
            task.cancel()
        await self._settler.stop()
        await self._context.reporting.stop()
        self._context.limiter.look_again()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_WAIT.total_seconds())


class SteppedWorker:
    """One worker process, in steps. After it has vanished, a test starts another."""

    def __init__(self, system: System) -> None:
        self._process = Process()
        store = cast("Store", _Link(system.store, self._process))
        broker = cast("Broker", _Link(system.broker, self._process))
        workloads = list(system.workloads.values())
        schedules = Schedules(store, system.intake, system.ambient.clock, workloads)
        linked = replace(system, store=store, broker=broker, schedules=schedules)
        self.lease = timedelta(seconds=system.settings.worker_lease_seconds)
        options = ExecutionOptions(
            worker=system.ambient.ids.new("worker"), concurrency=system.settings.worker_concurrency, lease=self.lease
        )
        self._maintenance = linked.maintenance()
        self._executions = [SteppedExecution(workload, linked, options, self._process) for workload in workloads]

    @property
    def jobs(self) -> list[str]:
        """The jobs in work, for a message."""
        return [job for execution in self._executions for job in execution.jobs]

    @property
    def in_flight(self) -> int:
        """How many jobs are in work."""
        return sum(execution.in_flight for execution in self._executions)

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        return self._process.alive

    def vanishes(self) -> Vanished:
        """From now on, nothing of this worker reaches the store or the queue. Raise what this returns."""
        self._process.alive = False
        return Vanished()

    async def settle(self) -> bool:
        """Maintenance and work, again and again until nothing is due. False: the worker has vanished meanwhile."""
        try:
            while await self._round():
                pass
        except asyncio.CancelledError:
            if self.alive:
                raise
        return self.alive

    async def _round(self) -> int:
        await self._maintenance.round()
        works = [asyncio.create_task(execution.work_off()) for execution in self._executions]
        try:
            await asyncio.wait(works)
        finally:
            for work in works:
                work.cancel()
        return sum([work.result() for work in works])

    async def time_has_passed(self) -> None:
        """The clock was moved."""
        for execution in self._executions:
            await execution.time_has_passed()

    async def look_for_cancellations(self) -> None:
        """Tell handlers whose jobs were cancelled."""
        for execution in self._executions:
            await execution.look_for_cancellations()

    async def vanish(self) -> None:
        """Vanish now, if that has not happened."""
        self.vanishes()
        for execution in self._executions:
            await execution.vanish()
