"""What a workload's readers see: its own words for a move of the ledger, as effects to commit with it.

These hooks are other people's code. Whatever they raise, the job meets its fate all the same, and its readers hear
nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from holdfast.contracts.effects import Effect
from holdfast.contracts.workload import Failure, Identity, Reason, Standing, Workload


class Readers:
    """The hooks of one workload, made safe to call."""

    def __init__(self, workload: Workload[Any]) -> None:
        self._workload = workload

    def data_of(self, body: str) -> BaseModel | None:
        """The job's data; None for a body that breaks its contract."""
        try:
            data: BaseModel = self._workload.contract.model_validate_json(body)
        except Exception:  # noqa: BLE001 - whatever an external producer's data does to the contract
            return None
        return data

    def identify(self, body: str) -> Identity:
        """The names that a job has by its own words."""
        try:
            content = json.loads(body)
            return self._workload.identify(content) if isinstance(content, dict) else Identity()
        except Exception:  # noqa: BLE001 - not JSON, or a workload's own code
            return Identity()

    def accepted(self, data: BaseModel, *, queued: bool) -> Sequence[Effect]:
        """Effects of the job's arrival."""
        return _safely(lambda: self._workload.accepted(data, queued=queued))

    def enqueued(self, body: str, generation: int) -> Sequence[Effect]:
        """Effects of its publishing; costs nothing for a workload that does not want to know."""
        if type(self._workload).enqueued is Workload.enqueued:
            return ()
        data = self.data_of(body)
        return () if data is None else _safely(lambda: self._workload.enqueued(data, generation))

    def retrying(self, job: Standing[Any] | None, failure: Failure, after: timedelta) -> Sequence[Effect]:
        """Effects of a failed attempt."""
        return () if job is None else _safely(lambda: self._workload.retrying(job, failure, after))

    def released(self, job: Standing[Any] | None) -> Sequence[Effect]:
        """Effects of an attempt that was cancelled."""
        return () if job is None else _safely(lambda: self._workload.released(job))

    def dead_lettered(self, job: Standing[Any] | None, reason: Reason) -> Sequence[Effect]:
        """Effects of its death."""
        return () if job is None else _safely(lambda: self._workload.dead_lettered(job, reason))

    def worked_elsewhere(self, job: Standing[Any] | None, result: Mapping[str, Any] | None) -> Sequence[Effect]:
        """Effects of work that somebody else did."""
        return () if job is None else _safely(lambda: self._workload.worked_elsewhere(job, result))

    def expired(self, data: BaseModel | None, *, cancelled: bool = False) -> Sequence[Effect]:
        """Effects of its end by age, or by its sender's wish."""
        if data is None:
            return ()
        return _safely(lambda: self._workload.cancelled(data) if cancelled else self._workload.expired(data))

    def interrupted(self, attempts: int) -> Reason:
        """What a job died of that was lost beyond its point of no return."""
        try:
            return self._workload.interrupted(attempts)
        except Exception:  # noqa: BLE001 - a workload's own code
            return Workload.interrupted(self._workload, attempts)

    def repeated(self, result: Mapping[str, Any] | None) -> str:
        """What a processed job returns that is delivered once more, as JSON."""
        try:
            return result_text(self._workload.repeated(result))
        except Exception:  # noqa: BLE001 - a workload's own code; the job is done, whatever it returns
            return result_text(None)

    def letter_body(self, body: str) -> str | None:
        """What the dead letter keeps; None: the job's own body."""
        if type(self._workload).letter_body is Workload.letter_body:
            return None
        try:
            return self._workload.letter_body(body)
        except Exception:  # noqa: BLE001 - a workload's own code; a letter may hold too little, not too much
            return "null"


def result_text(result: Mapping[str, Any] | None) -> str:
    """A job's result as the queue keeps it."""
    return json.dumps(result, separators=(",", ":"))


def _safely(hook: Callable[[], Sequence[Effect]]) -> Sequence[Effect]:
    try:
        return tuple(hook())
    except Exception:  # noqa: BLE001 - a workload's own code
        return ()
