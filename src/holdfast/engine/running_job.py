"""One job on its way through this process, from its claim to its settlement."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.contracts.ledger import Claimed, Exhausted, Interrupted, Lease, Overdue
from holdfast.contracts.queues import Delivery
from holdfast.contracts.transitions import Ending
from holdfast.contracts.workload import JobState

Held = Claimed | Exhausted | Interrupted | Overdue
"""The claims after which the job is ours."""


class RunningJob:
    """A claim, what the workload sees of its job, and the state of the work on it.

    ``job`` is None for a body that breaks its contract. ``delivery`` is None for a job that maintenance ends, or that
    its sender cancels: the queue did not deliver it. ``started`` is on the monotonic clock.
    """

    __slots__ = ("cancelled", "claim", "delivery", "job", "proceeded", "started", "task", "transition")

    def __init__(
        self, claim: Held, job: JobState[Any] | None, delivery: Delivery | None = None, started: float = 0.0
    ) -> None:
        self.claim = claim
        self.job = job
        self.delivery = delivery
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.proceeded = False
        """Whether the job has passed its point of no return (I11)."""
        self.cancelled = asyncio.Event()
        """Set when the worker has learned that the job's sender cancelled it."""
        self.transition: Ending | None = None
        """How the job ends; set when it is given to the settler, which may still change it."""

    @property
    def lease(self) -> Lease:
        """The proof that the job is ours."""
        return Lease(self.claim.job_id, self.claim.fence)

    @property
    def attempt(self) -> int:
        """The last attempt of the job; 0 if none is known."""
        return attempt_of(self.claim)


def attempt_of(claim: Held) -> int:
    """The attempt that the claim opened, or the last attempt before it. An overdue claim does not name its attempts."""
    match claim:
        case Claimed():
            return claim.attempt
        case Overdue():
            return 0
        case _:
            return claim.attempts
