"""Background tasks of workloads: repeated in a worker process until the process stops."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Final

from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.workload import BackgroundTask
from holdfast.telemetry import emit, emit_failure, events

_PAUSE: Final = timedelta(seconds=1)


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
