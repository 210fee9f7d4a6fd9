"""Cancellation: a sender cancels its job.

A job that waits ends at once. A job in work is asked to stop, if its workload is ``stoppable``: the request is in the
ledger, the job's worker finds it there within a second, and the handler sees it in its context. A job that ends
otherwise in the meantime keeps that end; a job that would be tried again is ended instead.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.ledger import Cancelled
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.transitions import CANCELLED, AskToStop, Expire
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .hooks import Hooks
from .settling import end

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
        hooks, expire = Hooks(workload), Expire(workload.retention, note=CANCELLED)
        settled, _ = await end(
            self._store, workload, [job_id], lambda job: hooks.with_effects(expire, job.job), worker=_NAME
        )
        if settled:
            emit(events.JOB_CANCELLED, workload=workload.name, job_id=job_id)
        with contextlib.suppress(BrokerUnavailable):  # a worker will find the job settled
            await self._broker.remove(workload.queue, [job_id])
