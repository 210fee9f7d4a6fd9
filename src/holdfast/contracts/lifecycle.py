"""The one table of legal transitions (I7), for ledger entries and for the review of dead letters.

Stores apply a transition by compare-and-set on the state that it starts from. A transition with several steps commits
them together. ``docs/lifecycle.md`` draws the same table.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import Final

from .dead_letters import ReviewStatus
from .ledger import Status


class TransitionName(StrEnum):
    """One name per transition of a ledger entry."""

    CLAIM = "claim"
    RECLAIM = "reclaim"  # the lease ran out: the orphaned attempt is closed as lost
    COMPLETE = "complete"
    RETRY = "retry"
    RELEASE = "release"  # shutdown or snooze: the entry is as it was before the claim, the attempt does not count
    DEAD_LETTER = "dead_letter"
    EXPIRE = "expire"
    REPLAY = "replay"


TRANSITIONS: Final[dict[TransitionName, tuple[tuple[Status, ...], ...]]] = {
    TransitionName.CLAIM: ((Status.RECEIVED, Status.PROCESSING), (Status.FAILED, Status.PROCESSING)),
    TransitionName.RECLAIM: ((Status.PROCESSING, Status.PROCESSING),),
    TransitionName.COMPLETE: ((Status.PROCESSING, Status.PROCESSED),),
    TransitionName.RETRY: ((Status.PROCESSING, Status.FAILED),),
    TransitionName.RELEASE: ((Status.PROCESSING, Status.RECEIVED), (Status.PROCESSING, Status.FAILED)),
    TransitionName.DEAD_LETTER: ((Status.PROCESSING, Status.FAILED, Status.DEAD_LETTERED),),
    TransitionName.EXPIRE: ((Status.PROCESSING, Status.FAILED, Status.EXPIRED),),
    TransitionName.REPLAY: ((Status.DEAD_LETTERED, Status.RECEIVED),),
}

EDGES: Final[frozenset[tuple[Status, Status]]] = frozenset(
    edge for paths in TRANSITIONS.values() for path in paths for edge in pairwise(path)
)
"""Every single step that some transition takes."""

REVIEW_STEPS: Final[dict[ReviewStatus, frozenset[ReviewStatus]]] = {
    ReviewStatus.PENDING: frozenset({ReviewStatus.REVIEWED}),
    ReviewStatus.REVIEWED: frozenset({ReviewStatus.REPLAYED, ReviewStatus.CLOSED}),
    ReviewStatus.REPLAYED: frozenset({ReviewStatus.CLOSED}),
    ReviewStatus.CLOSED: frozenset(),
}


def legal(start: Status, end: Status) -> bool:
    """Whether an entry may go from one state to the other in one step."""
    return (start, end) in EDGES
