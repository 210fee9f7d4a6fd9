"""The events and the one function that emits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Exporter = Callable[[str, dict[str, Any]], None]

API_UNEXPECTED: Final = "api.unexpected"
"""A request ended in a 500: error type, place, trace id."""
ATTEMPT_SETTLED: Final = "attempt.settled"
"""The canonical line of an attempt: workload, key, attempt, outcome, error code, duration, trace id."""
ATTEMPT_STALE: Final = "attempt.stale"
"""A worker's result came too late: another one owns the job (I4). Nothing was written."""
BATCH_SPLIT: Final = "batch.split"
"""A batch could not be committed whole; its jobs are settled one by one."""
JOB_ACCEPTED: Final = "job.accepted"
JOB_ADOPTED: Final = "job.adopted"
JOB_DEAD_LETTERED: Final = "job.dead_lettered"
JOB_EXPIRED: Final = "job.expired"
JOB_CANCELLED: Final = "job.withdrawn"
"""A sender took back a job that still waited."""
JOB_WORKED_ELSEWHERE: Final = "job.worked_elsewhere"
"""Somebody else's worker finished the job, or failed it for good; the ledger says so now."""
LETTER_DECIDED: Final = "letter.decided"
"""A person reviewed, replayed or closed a dead letter."""
PROCESS_KILLED: Final = "process.killed"
"""A process did not stop in time when it was told to, and was ended."""
PROCESS_LOST: Final = "process.lost"
"""A process ended, or did not start, and nobody had told it to; it is started again."""
PROCESS_STARTED: Final = "process.started"
PROCESS_STOPPED: Final = "process.stopped"
QUEUE_HALTED: Final = "queue.halted"
"""A handler found that nothing of its kind can be done: the queue is paused until a person resumes it."""
QUEUE_LOST: Final = "queue.lost"
"""The queue forgot everything; maintenance rebuilds it from the ledger."""
QUEUE_SHARED: Final = "queue.shared"
"""Once for each queue: other people's workers work on it too. What they finish is settled here as they tell it."""
QUEUE_UNSURE: Final = "queue.unsure"
"""Once for each queue: jobs were published again that the queue has lost, or that somebody else's worker finished and
removed without a trace. Let that worker keep finished jobs for a minute, and nothing is unsure."""
QUEUE_UNAVAILABLE: Final = "queue.unavailable"
RECORDS_FOREIGN: Final = "records.foreign"
"""Collections hold records of another system. `holdfast migrate` brings over those that are settled."""
RELOAD_REFUSED: Final = "reload.refused"
"""A process without child processes got SIGHUP. It cannot reload, and goes on as it is."""
RESTART_ABANDONED: Final = "restart.abandoned"
"""A rolling restart was given up: a replacement did not come up. The processes that are left go on."""
RESTART_BEGUN: Final = "restart.begun"
RESTART_DONE: Final = "restart.done"
STORE_UNAVAILABLE: Final = "store.unavailable"
MAINTENANCE_DONE: Final = "maintenance.done"
MAINTENANCE_FAILED: Final = "maintenance.failed"
WORKER_FAULT: Final = "worker.fault"
"""Something that nobody foresaw. The jobs concerned come back when their leases have run out."""
WORKER_STARTED: Final = "worker.started"
WORKER_STOPPED: Final = "worker.stopped"
WORKLOAD_FAILED: Final = "workload.failed"
"""A hook or the retry policy of a workload raised; its job goes on with the default (I21)."""

_exporters: list[Exporter] = []


def attach(exporter: Exporter) -> None:
    """From now on, give every event to this exporter too."""
    _exporters.append(exporter)


def detach(exporter: Exporter) -> None:
    """Stop giving it events."""
    _exporters.remove(exporter)


def emit(event: str, /, **fields: Any) -> None:  # noqa: ANN401 - events carry what they carry
    """Say that something happened. An exporter that fails is no reason to fail with it."""
    for exporter in _exporters:
        try:
            exporter(event, fields)
        except Exception:  # noqa: BLE001, S112 - there is nobody left to tell
            continue
