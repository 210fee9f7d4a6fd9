"""The worker process: the execution and the background tasks of every workload, and maintenance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.workload import BackgroundTask, Workload
from holdfast.engine.adoption import adopt_texts
from holdfast.engine.execution import Execution, ExecutionOptions
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.settling import Ended
from holdfast.telemetry import emit, emit_failure, events

_PAUSE: Final = timedelta(seconds=1)


class Worker:
    """Runs the workloads of one process. Without maintenance, another process must run it.

    ``ended`` is called with the keys of jobs that have ended here.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that the composition root puts together
        self,
        workloads: Sequence[Workload[Any]],
        store: Store,
        broker: Broker,
        ambient: Ambient,
        maintenance: Maintenance | None,
        options: ExecutionOptions,
        *,
        drain: timedelta,
        ended: Ended | None = None,
    ) -> None:
        self._workloads = tuple(workloads)
        self._maintenance = maintenance
        self._options = options
        self._drain = drain
        self._background = [
            task
            for workload in self._workloads
            for task in workload.background(partial(adopt_texts, store, broker, workload))
        ]
        self._executions = [Execution(workload, store, broker, ambient, options, ended) for workload in self._workloads]

    @property
    def in_flight(self) -> int:
        """How many jobs are in work."""
        return sum(execution.in_flight for execution in self._executions)

    async def run(self, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Work until ``stop`` is set, then drain: running jobs finish or are released, and cost no attempt.

        ``started`` is set when every workload has started.
        """
        running: list[Workload[Any]] = []
        try:
            for workload in self._workloads:
                await workload.start()
                running.append(workload)
            if started is not None:
                started.set()
            emit(events.WORKER_STARTED, worker=self._options.worker, workloads=[each.name for each in self._workloads])
            async with asyncio.TaskGroup() as group:
                if self._maintenance is not None:
                    group.create_task(self._maintenance.run(stop))
                for task in self._background:
                    group.create_task(run_repeatedly(task, stop))
                for execution in self._executions:
                    group.create_task(execution.run(stop, self._drain))
        finally:
            for workload in reversed(running):
                await workload.stop()
            emit(events.WORKER_STOPPED, worker=self._options.worker)


async def run_repeatedly(task: BackgroundTask, stop: asyncio.Event) -> None:
    """Call the step of the task again and again. An error is logged, and the step is called again after a pause."""
    while not stop.is_set():
        try:
            await task.step()
        except BrokerUnavailable as error:
            emit(events.QUEUE_UNAVAILABLE, where=task.name, reason=error.message)
        except StoreUnavailable as error:
            emit(events.STORE_UNAVAILABLE, where=task.name, reason=error.message)
        except Exception as error:  # noqa: BLE001 - a workload's own code
            emit_failure(events.WORKER_FAULT, error, where=task.name)
        else:
            continue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE.total_seconds()):
                await stop.wait()
