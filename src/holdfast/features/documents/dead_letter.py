"""A dead letter as the queue ``doc_jobs_dead`` holds it: exactly schema v1 of the specification (rules D8 to D19).

Fields may be added, none renamed or removed (D26, D27). ``error_code``, ``error_detail``, ``replay_of`` and
``attempt_history`` are our additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from holdfast import Attempt, DeadLetter, isoformat

from .adopting import payload_of
from .contract import InputType, JobType
from .failures import ErrorType, kind_of, message_and_detail

SCHEMA_VERSION: Final = "v1"
_UNKNOWN: Final = "UNKNOWN"


_KNOWN_TYPES: Final[dict[str, JsonValue]] = {
    "if": {"properties": {"error_type": {"const": ErrorType.VALIDATION.value}}, "required": ["error_type"]},
    "else": {
        "properties": {
            "job_type": {"enum": [each.value for each in JobType]},
            "input_type": {"enum": [each.value for each in InputType]},
        }
    },
}
"""Only a job that broke its contract can have another type than these."""


class PastAttempt(BaseModel):
    """One attempt, and how it ended."""

    model_config = ConfigDict(extra="forbid")

    attempt: int
    outcome: str
    error_code: str | None = None
    error: str | None = None
    worker_id: str | None = None
    started_at: datetime
    finished_at: datetime | None = None


class DocumentDeadLetter(BaseModel):
    """Why a document was not read.

    The specification has the fields up to ``schema_version``, and defines which of them are required. Other systems
    may write letters with these fields only. Ours have every field that is known of the failure. ``job_type`` and
    ``input_type`` are the job's own. A job that was refused may have values that the contract does not know.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_KNOWN_TYPES)

    job_id: str
    job_type: str = Field(min_length=1)
    input_type: str = Field(min_length=1)
    payload: JsonValue = Field(description="The original payload, whole.")
    status: Literal["FAILED"]
    error: str = Field(description="The final error, for people.")
    error_type: ErrorType | None = None
    attempts: int = Field(ge=0)
    max_attempts: int | None = Field(default=None, ge=1)
    failed_at: datetime
    worker_id: str | None = None
    schema_version: Literal["v1"] = SCHEMA_VERSION
    error_code: str | None = None
    error_detail: str | None = None
    replay_of: str | None = None
    attempt_history: list[PastAttempt] = Field(default_factory=list)


def dead_letter_payload(letter: DeadLetter, job: object, max_attempts: int) -> Mapping[str, Any]:
    """The letter of a job. It is not validated: a job that broke its contract gets a letter too."""
    given: Mapping[str, Any] = job if isinstance(job, dict) else {}
    error, detail = message_and_detail(letter.reason_message)
    payload: dict[str, Any] = {
        "job_id": _name(given.get("job_id")) or letter.job_id,
        "job_type": _text(given.get("job_type")) or _UNKNOWN,
        "input_type": _text(given.get("input_type")) or _UNKNOWN,
        "payload": None,
        "status": "FAILED",
        "error": error or letter.reason_code,
        "error_type": kind_of(letter.reason_code).error_type.value,
        "attempts": letter.attempt_count,
        "max_attempts": max_attempts,
        "failed_at": isoformat(letter.created_at),
        "schema_version": SCHEMA_VERSION,
        "error_code": letter.reason_code,
        "attempt_history": [_attempt(each) for each in letter.attempts],
    }
    payload["payload"] = payload_of(job, payload)
    if letter.attempts:
        payload["worker_id"] = letter.attempts[-1].worker
    if detail is not None:
        payload["error_detail"] = detail
    if _text(given.get("replay_of")) is not None:
        payload["replay_of"] = given["replay_of"]
    return payload


def _attempt(attempt: Attempt) -> dict[str, Any]:
    message = message_and_detail(attempt.error_message or "")[0]
    fields: dict[str, Any] = {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.value,
        "error_code": attempt.error_code,
        "error": message or None,
        "worker_id": attempt.worker,
        "started_at": isoformat(attempt.started_at),
        "finished_at": None if attempt.finished_at is None else isoformat(attempt.finished_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _name(value: object) -> str | None:
    """A text or a number as a text: people read a number as a name too."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
