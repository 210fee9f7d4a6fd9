"""The hooks of a workload, made safe to call.

Hooks and retry policies are other people's code. A hook that raises does not stop its job: the job goes on with the
default of that hook, and the failure is one event ``workload.failed`` with its traceback (I21).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from holdfast.contracts.effects import Effect
from holdfast.contracts.retry import ExponentialBackoff
from holdfast.contracts.workload import Failure, Identity, Reason, Standing, Workload
from holdfast.telemetry import emit_failure, events

Result = TypeVar("Result")


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


class Hooks:
    """The hooks of one workload."""

    def __init__(self, workload: Workload[Any]) -> None:
        self._workload = workload

    def data_of(self, body: str) -> BaseModel | None:
        """The job's data; None for a body that breaks its contract."""
        contract = self._workload.contract

        def validated() -> BaseModel | None:
            try:
                data: BaseModel = contract.model_validate_json(body)
            except ValidationError:  # the body is at fault, and not the workload's code
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

    def accepted(self, data: BaseModel, *, queued: bool) -> Sequence[Effect]:
        """Effects of the job's arrival."""
        return self._effects("accepted", lambda: self._workload.accepted(data, queued=queued))

    def enqueued(self, body: str, generation: int) -> Sequence[Effect]:
        """Effects of its publishing. The body is not read for a workload without this hook."""
        if type(self._workload).enqueued is Workload.enqueued:
            return ()
        data = self.data_of(body)
        return () if data is None else self._effects("enqueued", lambda: self._workload.enqueued(data, generation))

    def retrying(self, job: Standing[Any] | None, failure: Failure, after: timedelta) -> Sequence[Effect]:
        """Effects of a failed attempt."""
        return () if job is None else self._effects("retrying", lambda: self._workload.retrying(job, failure, after))

    def released(self, job: Standing[Any] | None) -> Sequence[Effect]:
        """Effects of an attempt that was released."""
        return () if job is None else self._effects("released", lambda: self._workload.released(job))

    def dead_lettered(self, job: Standing[Any] | None, reason: Reason) -> Sequence[Effect]:
        """Effects of its move to the dead letters."""
        return () if job is None else self._effects("dead_lettered", lambda: self._workload.dead_lettered(job, reason))

    def worked_elsewhere(self, job: Standing[Any] | None, result: Mapping[str, Any] | None) -> Sequence[Effect]:
        """Effects of work that another system's worker did."""
        if job is None:
            return ()
        return self._effects("worked_elsewhere", lambda: self._workload.worked_elsewhere(job, result))

    def expired(self, data: BaseModel | None, *, cancelled: bool = False) -> Sequence[Effect]:
        """Effects of its end: its deadline passed, or its sender cancelled it."""
        if data is None:
            return ()
        if cancelled:
            return self._effects("cancelled", lambda: self._workload.cancelled(data))
        return self._effects("expired", lambda: self._workload.expired(data))

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

    def _effects(self, hook: str, call: Callable[[], Sequence[Effect]]) -> Sequence[Effect]:
        return call_hook(self._workload, hook, lambda: tuple(call()), tuple)


def result_text(result: Mapping[str, Any] | None) -> str:
    """A job's result as the queue keeps it."""
    return json.dumps(result, separators=(",", ":"))
