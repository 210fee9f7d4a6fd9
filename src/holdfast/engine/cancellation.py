"""Cancellation: a sender cancels its job.

A job that waits ends at once. A job in work is asked to stop, if its workload is ``stoppable``: the request is in the
ledger, the job's worker finds it there within a second, and the handler sees it in its context. A job that ends
otherwise in the meantime keeps that end; a job that would be tried again is ended instead.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.ledger import Cancelled, Lease, Overdue
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.transitions import CANCELLED, AskToStop, Expire, Settlement
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .hooks import Hooks

_SHORT_LEASE: Final = timedelta(seconds=30)
_NAME: Final = "cancellation"


class Cancellation:
    """Cancels jobs."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def cancel(self, workload: Workload[Any], key: str) -> Cancelled:
        """``ENDS``: the job will never run, and its entry is ``expired`` with the note for cancelled jobs.

        If this process crashes halfway, a worker or maintenance expires the job in the same way.
        """
        entry = await self._store.entry(workload.name, key)
        if entry is None:
            return Cancelled.TOO_LATE
        (answer,) = await self._store.cancel(workload.name, [entry.job_id], running=workload.stoppable)
        if answer is Cancelled.ENDS:
            await self._end(workload, entry.job_id)
        elif answer is Cancelled.STOPS:
            effects = Hooks(workload).effects_of(AskToStop(), entry.job_id, entry.body, entry.generation)
            await self._store.apply(effects)
        return answer

    async def _end(self, workload: Workload[Any], job_id: str) -> None:
        # With ``max_attempts=0`` the claim opens no attempt: the job is not worked here.
        (claim,) = await self._store.claim(workload.name, [job_id], worker=_NAME, lease=_SHORT_LEASE, max_attempts=0)
        if isinstance(claim, Overdue):
            hooks = Hooks(workload)
            transition = hooks.with_effects(Expire(workload.retention, note=CANCELLED), hooks.job_of(claim))
            await self._store.settle([Settlement(workload.name, Lease(job_id, claim.fence), transition)])
            emit(events.JOB_CANCELLED, workload=workload.name, job_id=job_id)
        with contextlib.suppress(BrokerUnavailable):  # a worker will find the job settled
            await self._broker.remove(workload.queue, [job_id])
