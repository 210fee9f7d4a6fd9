"""Queries: filters, pages, slices."""

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
    """How many items to read, and where to continue: ``cursor`` is the ``next`` of the last slice."""

    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Slice(Generic[Item]):
    """One page of the results. ``next`` is None on the last page."""

    items: list[Item]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryQuery:
    """Which ledger entries. Newest first.

    All conditions must hold. ``key`` is the whole key, and ``key_prefix`` is its beginning. A job was first seen at
    ``seen_after`` or later, and before ``seen_before``. Only labels that the workload indexes can be asked for.
    """

    workload: str
    status: Status | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    key_prefix: str | None = None
    seen_after: datetime | None = None
    seen_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which dead letters. Oldest first, so that a limited replay starts with the letters that wait longest."""

    workload: str | None = None
    review_status: ReviewStatus | None = None
    reason_code: str | None = None
    key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether the query has no condition, and matches every letter."""
        return self == LetterQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Which records of a collection: equal values of indexed fields.

    They come in the order of their keys. With the name of an instant in ``newest_by`` they come newest first, without
    the records that do not have that instant.
    """

    collection: str
    where: Mapping[str, Any] = field(default_factory=dict)
    newest_by: str | None = None
