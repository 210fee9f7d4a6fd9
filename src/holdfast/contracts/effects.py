"""Effects: what a handler wants written, as data.

A handler returns effects; the engine commits them in the same transaction as the ledger entry. That is why a
database effect happens exactly once for each generation of a job (I3), however often the handler ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # an entry has effects, and an effect may have an entry
    from .ledger import NewEntry

IGNORED_STALE = "ignored_stale"
"""The note on a ledger entry whose effect was older than the record, and was skipped (I16)."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write fields of one record. A record that does not exist is created.

    ``set`` replaces the named fields and leaves the others. ``set_on_insert`` applies only when the record is
    created. ``only_if_newer`` names a field of ``set``: if the stored record has a greater value in that field, the
    effect is skipped, and the entry and the job's result have the note ``ignored_stale``. Equal values apply, in
    commit order. ``add`` adds to numbers; a number that is not there yet counts as 0. It belongs into the effects of a
    job, which are applied once: ``Records.apply`` may repeat its effects when a reply was lost.

    ``only_if_same`` names fields of ``set``: if the stored record has another value in such a field, nothing of the job
    is applied, and the job becomes a dead letter with the code that is given for the field. So a record may belong to
    the one who wrote it first.

    ``key`` is the record's key and is written into the collection's key field. Values must be JSON; timestamps
    are ISO-8601 strings in UTC with a fixed width (see :func:`holdfast.contracts.times.isoformat`), so that comparing
    strings compares instants. The store adds ``createdAt`` and ``updatedAt`` from its own clock.
    """

    collection: str
    key: str
    set: Mapping[str, Any] = field(default_factory=dict)
    set_on_insert: Mapping[str, Any] = field(default_factory=dict)
    only_if_newer: str | None = None
    add: Mapping[str, int] = field(default_factory=dict)
    only_if_same: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove one record, if it exists."""

    collection: str
    key: str


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Submit a job that follows from the job that is settled: recorded in the same commit, queued soon after.

    The new job's workload must be part of the process. A job whose key is known already stays as it is. Only the
    settlement of a job may have this effect; see :func:`holdfast.contracts.entries.new_entry`.
    """

    entry: NewEntry


Effect = Upsert | Delete | Enqueue


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind of record that a workload keeps: its key field and the indexes for its queries.

    Each index is a tuple of top-level field names. ``instants`` names the top-level fields that hold instants, as
    :func:`holdfast.contracts.times.isoformat` writes them: a store that has a type for instants uses it, so that people
    can query by time. Effects and queries always see the text. ``expires`` names one of them: a record is deleted some
    time after that instant, and a record without that instant stays. ``columns`` names further top-level fields that
    are columns in a store with columns. The key, indexed fields and instants are columns anyway.
    """

    name: str
    key: str
    indexes: tuple[tuple[str, ...], ...] = ()
    instants: tuple[str, ...] = ()
    expires: str | None = None
    columns: tuple[str, ...] = ()
