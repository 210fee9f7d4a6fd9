"""The hooks of a workload, made safe to call.

Hooks and retry policies are other people's code. A hook that raises does not stop its job: the job goes on with the
default of that hook, and the failure is one event ``workload.failed`` with its traceback (I21).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from holdfast.contracts.effects import Effect
from holdfast.contracts.errors import NewerVersion
from holdfast.contracts.jobs import JobState
from holdfast.contracts.ledger import Held, NewEntry
from holdfast.contracts.outcomes import Failure, Reason
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.transitions import Accept, AskToStop, Ending, Publish, Transition
from holdfast.contracts.workload import Identity, Workload
from holdfast.telemetry import emit_failure, events

Result = TypeVar("Result")

result_text = json.JSONEncoder(separators=(",", ":")).encode
"""A job's result as the queue keeps it."""


def report_failure(workload: Workload[Any], hook: str, error: BaseException) -> None:
    """Emit the failure of a workload's own code."""
    emit_failure(events.WORKLOAD_FAILED, error, workload=workload.name, hook=hook)


def call_hook(
    workload: Workload[Any],
    hook: str,
    call: Callable[[], Result],
    default: Callable[[], Result],
) -> Result:
    """Return what the hook returns. If the hook raises, report the failure and return the default."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - a workload's own code
        report_failure(workload, hook, error)
        return default()


def policy_limit(workload: Workload[Any]) -> int:
    """The most attempts that the retry policy allows to any job."""
    return call_hook(
        workload,
        "retry.max_attempts",
        lambda: workload.retry.max_attempts,
        lambda: ExponentialBackoff().max_attempts,
    )


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of one workload."""

    _workload: Workload[Any]

    def data_of(self, body: str) -> BaseModel | None:
        """The job's data; None for a body that breaks its contract."""

        def validated() -> BaseModel | None:
            try:
                data: BaseModel = self._workload.read(body)
            except (NewerVersion, ValidationError):  # the body is at fault, and not the workload's code
                return None
            return data

        return call_hook(self._workload, "contract", validated, lambda: None)

    def identify(self, body: str) -> Identity:
        """The names that a refused job has in its own content."""
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return Identity()
        if not isinstance(content, dict):
            return Identity()
        return call_hook(self._workload, "identify", lambda: self._workload.identify(content), Identity)

    def job_of(self, claim: Held) -> JobState[Any] | None:
        """The job of a claim; None for a body that breaks its contract."""
        data = self.data_of(claim.body)
        if data is None:
            return None
        return JobState(claim.key, claim.job_id, data, claim.attempt, claim.generation)

    def on_transition(self, transition: Transition, job: JobState[Any] | None) -> Sequence[Effect]:
        """The workload's own effects of a transition. A job that breaks its contract has none."""
        if job is None or getattr(self._workload.on_transition, "__func__", None) is Workload.on_transition:
            return ()
        return call_hook(
            self._workload, "on_transition", lambda: tuple(self._workload.on_transition(transition, job)), tuple
        )

    def with_effects(self, transition: Ending, job: JobState[Any] | None) -> Ending:
        """The transition with the workload's own effects, before the effects of the handler."""
        own = self.on_transition(transition, job)
        return replace(transition, effects=(*own, *transition.effects)) if own else transition

    def accepted(self, entry: NewEntry, data: BaseModel, *, queued: bool) -> NewEntry:
        """The entry with the effects of its acceptance, before the effects that it has."""
        if getattr(self._workload.on_transition, "__func__", None) is Workload.on_transition:
            return entry
        own = self.on_transition(Accept(queued), JobState(entry.key, entry.job_id, data, 0, 1))
        return replace(entry, effects=(*own, *entry.effects)) if own else entry

    def effects_of(self, transition: Publish | AskToStop, job_id: str, body: str, generation: int) -> Sequence[Effect]:
        """The effects of a transition that changes no state. The body is not read for a workload without records."""
        if getattr(self._workload.on_transition, "__func__", None) is Workload.on_transition:
            return ()
        data = self.data_of(body)
        if data is None:
            return ()
        key = call_hook(self._workload, "key", lambda: self._workload.key(data), lambda: None)
        return () if key is None else self.on_transition(transition, JobState(key, job_id, data, 0, generation))

    def interrupted(self, attempts: int) -> Reason:
        """Why a job failed for good that was lost beyond its point of no return."""
        workload = self._workload
        return call_hook(
            workload,
            "interrupted",
            lambda: workload.interrupted(attempts),
            lambda: Workload.interrupted(workload, attempts),
        )

    def exhausted(self, failure: Failure, attempts: int) -> Reason:
        """Why a job failed for good whose last attempt failed."""
        workload = self._workload
        return call_hook(
            workload,
            "exhausted",
            lambda: workload.exhausted(failure, attempts),
            lambda: Workload.exhausted(workload, failure, attempts),
        )

    def repeated(self, result: Mapping[str, Any] | None) -> str:
        """What a processed job returns that is delivered once more, as JSON."""
        return call_hook(
            self._workload,
            "repeated",
            lambda: result_text(self._workload.repeated(result)),
            lambda: result_text(None),  # the job is done, whatever it returns
        )

    def letter_body(self, body: str) -> str | None:
        """What the dead letter keeps; None: the job's own body."""
        if type(self._workload).letter_body is Workload.letter_body:
            return None
        return call_hook(
            self._workload,
            "letter_body",
            lambda: self._workload.letter_body(body),
            lambda: "null",  # a letter may hold too little, and must not hold too much
        )
