"""The collections and their indexes.

Names, fields and indexes are the specification's (``processed_events``, ``dead_letter_events``, ``active_shipments``);
the engine adds a few of its own. Every workload has a collection of entries and one of dead letters:

- entries: ``_id`` is the job id. ``idempotencyKey, <labels as columns>, status, generation, attemptCount,
  attemptHistory, lastErrorCode, lastErrorMessage, firstSeenAt, updatedAt, expiresAt, warnings`` are for people;
  ``fence, leaseUntil, notBefore, dueAt, deadline, proceeded, lettersUntil`` are for the engine. ``recordId, claimId,
  settleId, sweepId, withdrawn`` name the call that wrote last: a call whose answer was lost finds its own work by them.
  Four stored names are older than our words for them: ``life`` is the ttl in milliseconds, ``mortal`` is
  ``ttl_includes_replays``, ``lane`` is the fairness key (``openLane`` too, while the job is not settled), and
  ``withdrawn`` marks a job that its sender cancelled.
- dead letters: ``_id`` is the letter's id. ``payloadSnapshot`` is for people, ``body`` is the same as exact text.
  ``publishedTo`` is the epoch of the queue that has the letter, with a ``-`` before it once the letter is unpublished.
- another system of the same specification may have filled the first two, and the records: :mod:`.foreign`.
- ``holdfast_facts``: what the store knows about its surroundings, by name.
- ``holdfast_processes``: who is there, with which sessions; see :mod:`.presence`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING, IndexModel

from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ledger import Status
from holdfast.contracts.workload import Workload

from .link import Document
from .presence import PROCESSES

FACTS: Final = "holdfast_facts"
VERSION: Final = 1
"""Of this layout. A store that finds a higher number does not touch the data."""

WAITING: Final = (Status.RECEIVED.value, Status.FAILED.value)

# The server's own TTL monitor is the second net. Pruning comes first, because it tells the queue which letters are
# gone; and an entry must outlive its letter (I12), so its turn comes last of all.
_DOCUMENTS_LINGER: Final = timedelta(hours=1)
_LETTERS_LINGER: Final = timedelta(hours=1)
_ENTRIES_LINGER: Final = timedelta(hours=2)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OURS: Final = frozenset(
    {
        "_id",
        "idempotencyKey",
        "status",
        "generation",
        "attemptCount",
        "attemptHistory",
        "lastErrorCode",
        "lastErrorMessage",
        "firstSeenAt",
        "updatedAt",
        "expiresAt",
        "createdAt",
        "fence",
        "leaseUntil",
        "notBefore",
        "dueAt",
        "deadline",
        "life",
        "mortal",
        "lane",
        "openLane",
        "proceeded",
        "withdrawn",
        "lettersUntil",
        "recordId",
        "claimId",
        "settleId",
        "sweepId",
        "body",
        "fingerprint",
        "labels",
        "priority",
        "note",
        "result",
        "replayOf",
        "warnings",
        "jobId",
        "terminalReasonCode",
        "terminalReasonMessage",
        "payloadSnapshot",
        "reviewStatus",
        "decisions",
        "replayedAs",
        "publishedTo",
    }
)


@dataclass(frozen=True, slots=True)
class Index:
    """One index. A ``unique`` one is what a guarantee rests on; the others are there for speed and for retention."""

    keys: tuple[tuple[str, int], ...]
    unique: bool = False
    sparse: bool = False
    linger: timedelta | None = None
    """With a value: documents go so long after the instant in the indexed field."""
    only: tuple[tuple[str, Any], ...] = ()
    """Conditions that an indexed document meets."""
    beside: bool = False
    """Whether another system may have an index on the same fields with other options: then ours has a name of its own.

    MongoDB refuses two of one name, and two that differ in nothing but their time to live.
    """

    @property
    def name(self) -> str:
        """The name that MongoDB itself would give it; so another system that makes the same index finds it made."""
        name = "_".join(f"{field}_{direction}" for field, direction in self.keys)
        return f"{name}_holdfast" if self.beside else name

    def is_there(self, indexes: Mapping[str, Document]) -> bool:
        """Whether it is among these indexes on the same fields, which come by name. The name may not matter."""
        if self.beside:
            return indexes.get(self.name) == self.options
        return self.options in indexes.values()

    @property
    def options(self) -> Document:
        """What ``listIndexes`` tells about it beyond its keys."""
        options: Document = {}
        if self.unique:
            options["unique"] = True
        if self.sparse:
            options["sparse"] = True
        if self.linger is not None:
            options["expireAfterSeconds"] = int(self.linger.total_seconds())
        if self.only:
            options["partialFilterExpression"] = dict(self.only)
        return options

    def model(self) -> IndexModel:
        """As the driver wants it."""
        return IndexModel(list(self.keys), name=self.name, **self.options)


def _on(*fields: str, **options: Any) -> Index:  # noqa: ANN401 - the index's own options
    return Index(tuple((field, ASCENDING) for field in fields), **options)


def _newest(*fields: str) -> Index:
    """For listings that start with the newest entry."""
    before = tuple((field, ASCENDING) for field in fields)
    return Index((*before, ("firstSeenAt", DESCENDING), ("_id", DESCENDING)))


def label_field(workload: Workload[Any], label: str) -> str:
    """Where a label is indexed: in its column, if it has one."""
    return label if label in workload.label_columns else f"labels.{label}"


def ledger_name(workload: Workload[Any]) -> str:
    """The collection of a workload's entries."""
    return workload.ledger_name or f"{workload.name}_jobs"


def letters_name(workload: Workload[Any]) -> str:
    """The collection of its dead letters."""
    return workload.letters_name or f"{workload.name}_dead_letters"


def wanted(workloads: Sequence[Workload[Any]], collections: Sequence[Kind] = ()) -> dict[str, list[Index]]:
    """Every collection with its indexes; names that MongoDB or a person would stumble over are refused."""
    found: dict[str, list[Index]] = {FACTS: [], PROCESSES: []}
    for workload in workloads:
        for label in (*workload.label_columns, *workload.indexed_labels):
            _check(label)
        for label in workload.label_columns:
            if label in _OURS:
                message = f"{label!r} cannot be a label column of {workload.name}: entries have a field of that name."
                raise ConfigurationError(message)
        for name, indexes in (
            (ledger_name(workload), _entry_indexes(workload)),
            (letters_name(workload), _letter_indexes()),
        ):
            if name in found:
                message = f"Two workloads want the collection {name!r} for themselves."
                raise ConfigurationError(message)
            found[_check(name)] = indexes
    for collection in (*collections, *(each for workload in workloads for each in workload.collections)):
        indexes = _document_indexes(collection)
        if found.setdefault(_check(collection.name), indexes) != indexes:
            message = f"The collection {collection.name!r} is declared twice, and not in the same way."
            raise ConfigurationError(message)
    return found


def _document_indexes(collection: Kind) -> list[Index]:
    indexes = [_on(_check(collection.key), unique=True)]
    indexes += [_on(*map(_check, fields)) for fields in collection.indexes if fields != (collection.expires,)]
    if collection.expires is not None:
        if collection.expires not in collection.instants:
            message = f"{collection.name} cannot expire by {collection.expires!r}: it is not one of its instants."
            raise ConfigurationError(message)
        indexes.append(_on(_check(collection.expires), linger=_DOCUMENTS_LINGER))
    return indexes


def _entry_indexes(workload: Workload[Any]) -> list[Index]:
    waits = (("deadline", {"$exists": True}), ("status", {"$in": list(WAITING)}))
    return [
        _on("idempotencyKey", unique=True),
        _on("status", "updatedAt"),
        _on("expiresAt", sparse=True, linger=_ENTRIES_LINGER, beside=True),
        _on("dueAt", sparse=True),
        *([_on("deadline", only=waits)] if workload.ttl is not None else []),
        *(_fairness_indexes() if _has_fairness_key(workload) else []),
        _newest(),
        *(_newest(label_field(workload, label)) for label in workload.indexed_labels),
    ]


def _has_fairness_key(workload: Workload[Any]) -> bool:
    return type(workload).fairness_key is not Workload.fairness_key


def _fairness_indexes() -> list[Index]:
    """The last of each lane, and the first in work or in line: each is the first key that a look meets."""
    with_places = ("openLane", {"$exists": True})
    return [
        Index((("openLane", ASCENDING), ("priority", DESCENDING)), only=(with_places,)),
        Index((("status", ASCENDING), ("priority", DESCENDING)), only=(with_places,)),
    ]


def _letter_indexes() -> list[Index]:
    return [
        _on("reviewStatus", "createdAt"),
        _on("createdAt"),
        _on("expiresAt", sparse=True, linger=_LETTERS_LINGER, beside=True),
        # Another system's letters have no generation, and may be several of one key.
        _on("idempotencyKey", "generation", unique=True, only=(("generation", {"$exists": True}),)),
        _on("idempotencyKey"),
        _on("createdAt", "_id"),
        _on("reviewStatus", "publishedTo", "createdAt"),
    ]


def _check(name: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("system"):
        message = f"{name!r} cannot be the name of a collection or a field: use letters, digits and _."
        raise ConfigurationError(message)
    return name
