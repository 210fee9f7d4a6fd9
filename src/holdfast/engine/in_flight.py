"""A job that this process has claimed and not yet settled."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from holdfast.contracts.ledger import Claimed, Exhausted, Interrupted, Lease, Overdue
from holdfast.contracts.queues import Delivery

Held = Claimed | Exhausted | Interrupted | Overdue
"""The claims after which the job is ours."""


class InFlight:
    """A delivery, its claim, and the state of the work on it."""

    __slots__ = ("claim", "data", "delivery", "proceeded", "started", "task")

    def __init__(self, delivery: Delivery, claim: Held, started: float) -> None:
        self.delivery = delivery
        self.claim = claim
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.data: BaseModel | None = None
        """The data that the handler got; None before that, and for a body that breaks its contract."""
        self.proceeded = False
        """Whether the job has passed its point of no return (I11)."""

    @property
    def lease(self) -> Lease:
        """The proof that the job is ours."""
        return Lease(self.claim.job_id, self.claim.fence)

    @property
    def attempt(self) -> int:
        """The attempt that the claim opened; 0 when it opened none."""
        return self.claim.attempt if isinstance(self.claim, Claimed) else 0
