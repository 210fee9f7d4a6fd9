"""The collections and their indexes.

Names, fields and indexes are the specification's (``processed_events``, ``dead_letter_events``, ``active_shipments``);
the engine adds a few of its own. Every workload has a collection of entries and one of dead letters:

- entries: ``_id`` is the job id. ``idempotencyKey, <labels as columns>, status, generation, attemptCount,
  attemptHistory, lastErrorCode, lastErrorMessage, firstSeenAt, updatedAt, expiresAt, progress, warnings`` are for
  people; ``fence, leaseUntil, notBefore, dueAt, deadline, proceeded, lettersUntil`` are for the engine. ``recordId,
  claimId, settleId, sweepId, withdrawn`` hold the mark of the call that wrote last: a call whose reply was lost finds
  its own writes by its mark.
  Four stored names are older than our words for them: ``life`` is the ttl in milliseconds, ``mortal`` is
  ``ttl_includes_replays``, ``lane`` is the fairness key (``openLane`` too, while the job is not settled), and
  ``withdrawn`` marks a job that its sender cancelled.
- dead letters: ``_id`` is the letter's id. ``payloadSnapshot`` is for people, ``body`` is its exact text.
  ``publishedTo`` is the epoch of the queue that has the letter, with a ``-`` before it once the letter is unpublished.
- another system of the same specification may have written into these two and into the records: :mod:`.foreign`.
- ``holdfast_facts``: facts by name: the version of the layout, and the queue's epoch for each workload.
- ``holdfast_processes``: the running processes and their sessions; see :mod:`.server`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING, IndexModel

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.effects import Collection as Kind
from holdfast.contracts.entries import OWNER
from holdfast.contracts.errors import ConfigurationError
from holdfast.contracts.ledger import LedgerEntry, Status
from holdfast.contracts.workload import Workload
from holdfast.stores.fields import entries_name, letters_name, names_of, public_name

from .link import Collection, Document, Link
from .records import RecordCollections
from .server import PROCESSES

FACTS: Final = "holdfast_facts"
VERSION: Final = 1
"""The version of this layout. A store that finds a higher version does not touch the data."""

WAITING: Final = (Status.RECEIVED.value, Status.FAILED.value)
SETTLED: Final = [status.value for status in Status if status.terminal]

# The server's own TTL monitor is only a second safety net. Pruning comes first, because it also removes the letters
# from the queue. An entry must stay longer than its letter (I12), so the delay for entries is the longest.
_RECORDS_LINGER: Final = timedelta(hours=1)
_LETTERS_LINGER: Final = timedelta(hours=1)
_ENTRIES_LINGER: Final = timedelta(hours=2)

NEWEST_FIRST: Final = (("firstSeenAt", DESCENDING), ("_id", DESCENDING))
"""The order of entries in a list."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ENGINES_OWN: Final = (
    *("_id", "dueAt", "life", "mortal", "lane", "openLane", "proceeded", "withdrawn", "lettersUntil", "fingerprint"),
    *("recordId", "claimId", "settleId", "sweepId", "payloadSnapshot", "publishedTo"),
)
_NOT_STORED: Final = {"workload", "id"}  # under these names
_FIELDS: Final = {public_name(name) for name in (*names_of(LedgerEntry), *names_of(DeadLetter))}
_OURS: Final = (_FIELDS - _NOT_STORED).union(_ENGINES_OWN)


@dataclass(frozen=True, slots=True)
class Index:
    """One index. A guarantee depends on a ``unique`` index; the other indexes are for speed and for retention."""

    keys: tuple[tuple[str, int], ...]
    unique: bool = False
    sparse: bool = False
    linger: timedelta | None = None
    """If set: the server deletes a document this long after the instant in the indexed field."""
    only: tuple[tuple[str, Any], ...] = ()
    """Conditions: only documents that fulfil them are in the index."""
    beside: bool = False
    """Whether another system may have an index on the same fields with other options: then ours has a name of its own.

    MongoDB refuses two indexes with one name, and two indexes that differ only in their time to live.
    """

    @property
    def name(self) -> str:
        """The name that MongoDB itself gives by default. So another system with the same index finds it present."""
        name = "_".join(f"{field}_{direction}" for field, direction in self.keys)
        return f"{name}_holdfast" if self.beside else name

    def is_there(self, indexes: Mapping[str, Document]) -> bool:
        """Whether this index is among the indexes on the same fields. The name matters only with ``beside``."""
        if self.beside:
            return indexes.get(self.name) == self.options
        return self.options in indexes.values()

    @property
    def options(self) -> Document:
        """The options that ``listIndexes`` returns for this index, without its fields."""
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
        """The index for the driver."""
        return IndexModel(list(self.keys), name=self.name, **self.options)


def _on(*fields: str, **options: Any) -> Index:  # noqa: ANN401 - the index's own options
    return Index(tuple((field, ASCENDING) for field in fields), **options)


def _newest(field: str) -> Index:
    """An index for listings that start with the newest entry with this value."""
    return Index(((field, ASCENDING), *NEWEST_FIRST))


def label_field(workload: Workload[Any], label: str) -> str:
    """The indexed field of a label: its column, if it has one."""
    return label if label in workload.label_columns else f"labels.{label}"


def wanted(workloads: Sequence[Workload[Any]], collections: Sequence[Kind] = ()) -> dict[str, list[Index]]:
    """Every collection with its indexes. Names that would not work in MongoDB are refused."""
    found: dict[str, list[Index]] = {FACTS: [], PROCESSES: []}
    for workload in workloads:
        for label in (*workload.label_columns, *workload.indexed_labels):
            _check(label)
        for label in workload.label_columns:
            if label in _OURS:
                message = f"{label!r} cannot be a label column of {workload.name}: entries have a field of that name."
                raise ConfigurationError(message)
        for name, indexes in (
            (entries_name(workload), _entry_indexes(workload)),
            (letters_name(workload), _letter_indexes()),
        ):
            if name in found:
                message = f"Two workloads want the collection {name!r} for themselves."
                raise ConfigurationError(message)
            found[name] = indexes
    for collection in (*collections, *(each for workload in workloads for each in workload.collections)):
        indexes = _record_indexes(collection)
        if found.setdefault(_check(collection.name), indexes) != indexes:
            message = f"The collection {collection.name!r} is declared twice, and not in the same way."
            raise ConfigurationError(message)
    return found


def retired(workloads: Sequence[Workload[Any]]) -> dict[str, list[Index]]:
    """Indexes that an earlier version made and that nothing uses any more. ``holdfast migrate`` drops them."""
    return {entries_name(workload): [Index(NEWEST_FIRST)] for workload in workloads}


def _record_indexes(collection: Kind) -> list[Index]:
    indexes = [_on(_check(collection.key), unique=True)]
    indexes += [_on(*map(_check, fields)) for fields in collection.indexes if fields != (collection.expires,)]
    if collection.expires is not None:
        if collection.expires not in collection.instants:
            message = f"{collection.name} cannot expire by {collection.expires!r}: it is not one of its instants."
            raise ConfigurationError(message)
        indexes.append(_on(_check(collection.expires), linger=_RECORDS_LINGER))
    return indexes


def _entry_indexes(workload: Workload[Any]) -> list[Index]:
    """As few as possible: every index makes each claim and each settlement dearer, also an index that stays the same.

    A listing of all entries merges the listings of all states, so it needs no index of its own.
    """
    waits = (("deadline", {"$exists": True}), ("status", {"$in": list(WAITING)}))
    return [
        _on("idempotencyKey", unique=True),
        _on("status", "updatedAt"),
        _on("expiresAt", sparse=True, linger=_ENTRIES_LINGER, beside=True),
        _on("dueAt", sparse=True),
        # Also without a ttl: a sender may cancel any job, and a cancelled job has a deadline.
        _on("deadline", only=waits),
        *(_fairness_indexes() if has_fairness_key(workload) else []),
        _newest("status"),
        *(_newest(label_field(workload, label)) for label in workload.indexed_labels),
    ]


def has_fairness_key(workload: Workload[Any]) -> bool:
    """Whether jobs of this workload may have a fairness key, and so have the indexes for it. Jobs of tenants have."""
    return type(workload).fairness_key is not Workload.fairness_key or OWNER in workload.indexed_labels


def _fairness_indexes() -> list[Index]:
    """For the last place of each fairness key, and for the front. Each query reads only the first key of an index."""
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
        # Another system's letters have no generation, and several of them may have the same key.
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


# --- the collections of this process -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkloadCollections:
    """The collections of entries and dead letters of one workload."""

    workload: Workload[Any]
    entries: Collection
    letters: Collection

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.workload.name


class AllCollections:
    """The collections of all workloads in this process."""

    def __init__(self, link: Link, workloads: Sequence[Workload[Any]]) -> None:
        self._collections = {
            workload.name: WorkloadCollections(
                workload, link.collection(entries_name(workload)), link.collection(letters_name(workload))
            )
            for workload in workloads
        }

    def __iter__(self) -> Iterator[WorkloadCollections]:
        return iter(self._collections.values())

    def get(self, workload: str) -> WorkloadCollections | None:
        """The collections of a workload; None when this process does not know the workload."""
        return self._collections.get(workload)

    def of(self, workload: str) -> WorkloadCollections:
        """The collections of a workload that must be known."""
        found = self._collections.get(workload)
        if found is None:
            message = f"No workload in this process is called {workload!r}."
            raise ConfigurationError(message)
        return found

    def named(self, workload: str | None) -> list[WorkloadCollections]:
        """The collections of one workload, or of all."""
        if workload is None:
            return list(self)
        found = self._collections.get(workload)
        return [] if found is None else [found]


class StoreParts:
    """What every part of the store works with. :class:`~.store.MongoStore` is made of these parts."""

    def __init__(
        self, link: Link, workloads: Sequence[Workload[Any]], collections: Sequence[Kind], grace: timedelta
    ) -> None:
        self.link = link
        self.grace = grace
        self.collections = AllCollections(link, workloads)
        kinds = [*collections, *(each for workload in workloads for each in workload.collections)]
        self.records = RecordCollections(link, kinds)
