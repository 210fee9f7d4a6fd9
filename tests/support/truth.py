"""What a store and its queues hold at the end of a run, in one form for every deployment.

The checker checks this and nothing else. Readers: ``sqlite_truth`` for the embedded file, ``cluster_truth`` for MongoDB
with Redis. Neither uses Holdfast's own code to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.contracts.ledger import Status
from holdfast.contracts.transitions import EDGES

Identity = tuple[str, str]
"""Workload and key."""

Edges = frozenset[tuple[Status, Status]]


@dataclass(frozen=True, slots=True)
class Truth:
    """Everything that was committed.

    ``entries`` and ``letters`` have the field names of the embedded tables; attempts, decisions and bodies are parsed.
    ``moves`` and ``writes`` are in the order of the commits: every step of every entry, and every write of an effect.
    """

    entries: Mapping[Identity, Mapping[str, Any]]
    letters: Sequence[Mapping[str, Any]]
    moves: Sequence[Mapping[str, Any]]
    writes: Sequence[Mapping[str, Any]]
    """``collection``, ``id``, and the ``document`` as it was written."""
    queued: Sequence[tuple[str, str]]
    """Queue and job id of everything that a queue would still hand out."""
    effects: Mapping[str, Mapping[str, Any]]
    shipments: Mapping[str, Mapping[str, Any]]
    damage: str | None = None
    """What is wrong with the storage itself."""
    edges: Edges = EDGES
    """The single steps that this store may show."""
