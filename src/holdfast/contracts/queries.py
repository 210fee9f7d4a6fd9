"""How readers ask: filters, pages, slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from .dead_letters import ReviewStatus
from .ledger import Status

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """How many to read, and where to go on: ``cursor`` is the last slice's ``next``, opaque to the reader."""

    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Slice(Generic[Item]):
    """Some of the answers. ``next`` is None on the last slice."""

    items: list[Item]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryQuery:
    """Which ledger entries. Newest first."""

    workload: str
    status: Status | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which dead letters. Oldest first, so that a limited replay starts with those that wait longest."""

    workload: str | None = None
    review_status: ReviewStatus | None = None
    reason_code: str | None = None
    key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether it would match everything."""
        return self == LetterQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Which documents of a collection: equal values of indexed fields.

    They come in the order of their keys, or, with the name of an instant in ``newest_by``, newest first; a document
    without that instant is left out then.
    """

    collection: str
    where: Mapping[str, Any] = field(default_factory=dict)
    newest_by: str | None = None
