"""Dead letters: everything about a job that failed for good, and its review by people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .ledger import Attempt


class ReviewStatus(StrEnum):
    """How far the review of a dead letter is. The steps are in ``holdfast.contracts.transitions``."""

    PENDING = "pending"
    REVIEWED = "reviewed"
    REPLAYED = "replayed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Decision:
    """One step that a person took: who, why, when."""

    step: ReviewStatus
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLetter:
    """A dead letter as a list has it: without the parts that can be long.

    A page of whole letters would take as much memory as the largest bodies that senders sent (I18).
    """

    id: str
    workload: str
    key: str
    job_id: str
    generation: int
    reason_code: str
    reason_message: str
    attempt_count: int
    labels: Mapping[str, str]
    review_status: ReviewStatus
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    replayed_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(ListedLetter):
    """Why a job failed for good, with everything that is needed to understand it and to run it again.

    There is exactly one dead letter for each (workload, key, generation) that failed for good (I8). So its id is made
    of these three.
    """

    attempts: tuple[Attempt, ...]
    body: str
    decisions: tuple[Decision, ...]


def letter_id(workload: str, key: str, generation: int) -> str:
    """The one id that a dead letter of this job's generation can have."""
    digest = hashlib.sha256(f"{workload}\0{key}\0{generation}".encode()).hexdigest()
    return f"dl_{digest[:20]}"
