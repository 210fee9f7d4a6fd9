"""The events, and the functions that emit them. A failure is an event with a traceback (I21), without values (I14).

A refusal by a limit (I18) is counted too, and is an event at most once a second.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import ValidationError

from holdfast.contracts.errors import message_of
from holdfast.contracts.redaction import scrub
from holdfast.contracts.validation import describe_validation

Exporter = Callable[[str, dict[str, Any]], None]

API_UNEXPECTED: Final = "api.unexpected"
"""A request ended in a 500: error type, place, trace id."""
ATTEMPT_SETTLED: Final = "attempt.settled"
"""The canonical line of an attempt: workload, key, attempt, outcome, error code, duration, trace id."""
ATTEMPT_STALE: Final = "attempt.stale"
"""A worker's result came too late: another worker owns the job (I4). Nothing was written."""
BATCH_SPLIT: Final = "batch.split"
"""A batch could not be committed as a whole; its jobs are settled one by one."""
BOUND_REACHED: Final = "bound.reached"
"""A limit refused something that came from outside: the limit's name, and how often since the last such line."""
JOB_ACCEPTED: Final = "job.accepted"
JOB_ADOPTED: Final = "job.adopted"
JOB_DEAD_LETTERED: Final = "job.dead_lettered"
JOB_EXPIRED: Final = "job.expired"
JOB_NEWER: Final = "job.newer_version"
"""A newer version of the program put a job into the queue, which this version cannot read; the job waits."""
JOB_CANCELLED: Final = "job.withdrawn"
"""A sender cancelled a job that still waited."""
JOB_WORKED_ELSEWHERE: Final = "job.worked_elsewhere"
"""Another system's worker finished the job, or failed it for good; the ledger is settled now."""
LETTER_DECIDED: Final = "letter.decided"
"""A person reviewed, replayed or closed a dead letter."""
PROCESS_KILLED: Final = "process.killed"
"""A process did not stop in time, and was killed."""
PROCESS_LOST: Final = "process.lost"
"""A process ended unexpectedly, or did not start; it is started again."""
PROCESS_STARTED: Final = "process.started"
PROCESS_STOPPED: Final = "process.stopped"
QUEUE_HALTED: Final = "queue.halted"
"""A handler returned ``Halt``: the queue is paused until a person resumes it."""
QUEUE_LOST: Final = "queue.lost"
"""The queue lost its jobs; maintenance rebuilds it from the ledger."""
QUEUE_SHARED: Final = "queue.shared"
"""Once for each queue: workers of another system use it too. What they finish is settled in the ledger."""
QUEUE_UNSURE: Final = "queue.unsure"
"""Once for each queue: jobs were published again that the queue has lost, or that another system's worker finished and
removed without a trace. If that worker keeps finished jobs for a minute, the two cases can be told apart."""
QUEUE_UNAVAILABLE: Final = "queue.unavailable"
RECORDS_FOREIGN: Final = "records.foreign"
"""Collections hold records of another system. `holdfast migrate` brings over those that are settled."""
RELOAD_REFUSED: Final = "reload.refused"
"""A process without child processes got SIGHUP. It cannot reload, and goes on as it is."""
RESTART_ABANDONED: Final = "restart.abandoned"
"""A rolling restart was given up: a replacement did not start. The remaining processes go on."""
RESTART_BEGUN: Final = "restart.begun"
RESTART_DONE: Final = "restart.done"
SCHEDULE_DECIDED: Final = "schedule.decided"
"""A person ran, paused or resumed a schedule."""
SCHEDULE_FAILED: Final = "schedule.failed"
"""The ticks of a schedule could not be submitted; they are tried again."""
SCHEDULE_LATE: Final = "schedule.late"
"""Ticks were missed: no process ran maintenance, or the clock was put forward. ``catch_up`` decides about them."""
SCHEDULE_REWOUND: Final = "schedule.rewound"
"""The store's clock is far behind the last tick: the schedule goes on from now. No tick is submitted twice."""
STORE_UNAVAILABLE: Final = "store.unavailable"
MAINTENANCE_DONE: Final = "maintenance.done"
MAINTENANCE_FAILED: Final = "maintenance.failed"
WORKER_FAULT: Final = "worker.fault"
"""An unexpected error. Its jobs come back when their leases have run out."""
WORKER_STARTED: Final = "worker.started"
WORKER_STOPPED: Final = "worker.stopped"
WORKLOAD_FAILED: Final = "workload.failed"
"""A hook or the retry policy of a workload raised; its job goes on with the default (I21)."""

_MOST_ERRORS: Final = 4
_MOST_FRAMES: Final = 20

_exporters: list[Exporter] = []


def attach(exporter: Exporter) -> None:
    """Call this exporter with every event from now on."""
    _exporters.append(exporter)


def detach(exporter: Exporter) -> None:
    """Stop calling this exporter."""
    _exporters.remove(exporter)


def emit(event: str, /, **fields: Any) -> None:  # noqa: ANN401 - fields of any type
    """Call every exporter with the event. An exporter that raises does not stop the caller."""
    for exporter in _exporters:
        try:
            exporter(event, fields)
        except Exception:  # noqa: BLE001, S112 - the error cannot be reported: the exporter is the report
            continue


def emit_failure(event: str, error: BaseException, /, **fields: Any) -> None:  # noqa: ANN401 - as ``emit``
    """Emit the event with ``error``, ``reason`` and ``traceback``, beside its other fields."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:  # as a task group raises an error
        error = error.exceptions[0]
    # A validation error of pydantic repeats the values in its message. Its description does not.
    reason = describe_validation(error) if isinstance(error, ValidationError) else scrub(message_of(error))
    emit(event, **fields, error=type(error).__name__, reason=reason, traceback=traceback_of(error))


def traceback_of(error: BaseException) -> list[str]:
    """The lines of the traceback, the oldest call first: ``file:line in function: source``.

    An error that was raised because of another error comes after that error, as in Python's own traceback. The lines
    have the types of the errors, and neither their messages nor the values of variables. Long tracebacks lose their
    oldest calls.
    """
    lines: list[str] = []
    for each in reversed(list(error_chain(error))):
        lines += [
            scrub(f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else ""))
            for frame in traceback.extract_tb(each.__traceback__, limit=-_MOST_FRAMES)
        ]
        lines.append(type(each).__name__)
    return lines


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and the errors that led to it."""
    each: BaseException | None = error
    for _ in range(_MOST_ERRORS):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


_LOG_EVERY_SECONDS: Final = 1.0

_refused: Counter[str] = Counter()
_logged: dict[str, tuple[float, int]] = {}
"""For each bound: when it was logged last, and what its count was then."""


def refused(bound: str, /, **fields: Any) -> None:  # noqa: ANN401 - as ``emit``
    """Count a refusal. The log gets one line a second for each bound: whoever sends too much must not fill the log.

    ``bound`` is one of a few fixed names, such as ``header_bytes``; nothing that a sender wrote.
    """
    _refused[bound] += 1
    now = time.monotonic()
    last, counted = _logged.get(bound, (-_LOG_EVERY_SECONDS, 0))
    if now - last >= _LOG_EVERY_SECONDS:
        _logged[bound] = (now, _refused[bound])
        emit(BOUND_REACHED, bound=bound, times=_refused[bound] - counted, **fields)


def refusals() -> dict[str, int]:
    """How often each bound has refused something since the process began."""
    return dict(_refused)
