"""A workload whose every run and every effect can be counted from outside.

A handler run leaves a line in a file that all workers append to; an effect is a document of its own for each
(key, generation), and ``tests.support.witness`` counts how often the store wrote it. A task's *mode* is the first word
of its key and says what is to become of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

from holdfast import App, Collection, Context, Done, Job, ListedDelays, Outcome, Reject, Retry, Upsert, Workload
from tests.support.schedules import scheduled

EFFECTS: Final = "counted_effects"
MAX_ATTEMPTS: Final = 12
"""Many, so that a task survives the workers that are killed under it."""
FAILURES_OF_FLAKY: Final = 2

RUNS_VARIABLE: Final = "CHAOS_RUNS"
GATES_VARIABLE: Final = "CHAOS_GATES"


class Task(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    text: str = ""
    work_ms: int = 0
    gate: str | None = None


class Counted(Workload[Task]):
    """Modes: ``plain``, ``flaky``, ``doomed`` (always), ``mended`` (only in its first generation), ``poison``."""

    name: ClassVar[str] = "counted"
    contract = Task
    queue: ClassVar[str] = "counted-main"
    dead_letter_queue: ClassVar[str] = "counted-dlq"
    retry = ListedDelays(
        (timedelta(milliseconds=20),), max_attempts=int(os.environ.get("RETRY_MAX_ATTEMPTS", MAX_ATTEMPTS))
    )
    timeout = timedelta(minutes=10)
    """Longer than any test keeps a gate closed, also on a slow machine: a timeout would be an attempt."""
    collections = (Collection(EFFECTS, key="effectId"),)

    def key(self, data: Task) -> str:
        return data.key

    async def handle(self, job: Job[Task], context: Context) -> Outcome:
        _write_down(job, context.worker)
        if job.data.work_ms:
            await asyncio.sleep(job.data.work_ms / 1000)
        while job.data.gate is not None and not _is_open(job.data.gate):  # noqa: ASYNC110 - a test opens it from afar
            await asyncio.sleep(0.01)
        match mode_of(job.key):
            case "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            case "doomed":
                return Reject("DOOMED", "This task never succeeds.")
            case "mended" if job.generation == 1:
                return Reject("BROKEN", "This task succeeds when it is replayed.")
            case "flaky" if job.attempt <= FAILURES_OF_FLAKY:
                return Retry("FLAKY", "This task succeeds a little later.")
        effect = {"key": job.key, "generation": job.generation, "attempt": job.attempt, "worker": context.worker}
        return Done([Upsert(EFFECTS, effect_id(job.key, job.generation), set=effect)])


def mode_of(key: str) -> str:
    """What is to become of a task or a courier event: the first word of its name."""
    return key.rpartition(":")[2].partition("-")[0]


def effect_id(key: str, generation: int) -> str:
    return f"{key}#{generation}"


def _write_down(job: Job[Task], worker: str) -> None:
    line = json.dumps([job.key, job.generation, job.attempt, worker]) + "\n"
    # One short write to a file opened for appending: lines of several processes do not mix.
    file = os.open(os.environ[RUNS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _is_open(gate: str) -> bool:
    return (Path(os.environ[GATES_VARIABLE]) / gate).exists()


app = App([Counted(), *scheduled(os.environ)])
