"""Settling: finished jobs of one workload are committed together, then acknowledged in the queue.

The ledger always comes first. A crash between the two does no harm: the queue delivers the job again, and the claim
answers that the job is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.errors import BrokerUnavailable, EffectRefused, HoldfastError, StoreContended, StoreUnavailable
from holdfast.contracts.ledger import Lease, Status
from holdfast.contracts.ports import Broker, Clock, Store
from holdfast.contracts.queues import Acknowledgement, Again, Delivery, Failed, Finished, Handling
from holdfast.contracts.redaction import scrub
from holdfast.contracts.transitions import (
    Complete,
    MoveToDeadLetters,
    Release,
    RetryLater,
    Settled,
    Settlement,
    Transition,
    noted_result,
)
from holdfast.contracts.workload import Failure, Workload
from holdfast.telemetry import emit, emit_failure, events

from .entries import body_at_attempt
from .failures import EFFECT_REFUSED
from .hooks import result_text
from .projection import Projection
from .transitions import Decider, Subject

_MOST_IN_ONE_COMMIT: Final = 100
_FIRST_WAIT: Final = timedelta(milliseconds=50)
_LONGEST_WAIT: Final = timedelta(seconds=2)
_POSTPONEMENT: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A job that is ready to be settled, with the facts for its log line and for the queue."""

    delivery: Delivery
    lease: Lease
    transition: Transition
    key: str
    generation: int
    attempt: int
    body: str
    labels: Mapping[str, str]
    started: float
    left: Callable[[], None]
    """Called when the job no longer occupies a slot."""


class Settler:
    """Collects finished jobs and settles them, one flush after another."""

    def __init__(self, workload: Workload[Any], store: Store, broker: Broker, clock: Clock, decider: Decider) -> None:
        self._workload = workload
        self._store = store
        self._broker = broker
        self._clock = clock
        self._decider = decider
        self._projection = Projection(store, broker)
        self._waiting: list[Finish] = []
        self._held: set[Lease] = set()
        self._postponed: set[Lease] = set()
        self._signal = asyncio.Event()

    def add(self, finish: Finish) -> None:
        """Settle this job with the next flush."""
        self._waiting.append(finish)
        self._held.add(finish.lease)
        self._signal.set()

    def holds(self, lease: Lease) -> bool:
        """Whether the job waits here or is being settled."""
        return lease in self._held

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._signal.wait()
            self._signal.clear()
            while self._waiting:
                batch = self._waiting[:_MOST_IN_ONE_COMMIT]
                del self._waiting[:_MOST_IN_ONE_COMMIT]
                await self._flush_safely(batch)

    async def _flush_safely(self, batch: Sequence[Finish]) -> None:
        try:
            await self._flush(batch)
        except Exception as error:  # noqa: BLE001 - an unexpected error of one flush must not end all settling
            # These leases are not renewed any more: after they have run out, the jobs are claimed again.
            emit_failure(events.WORKER_FAULT, error, workload=self._workload.name)
        finally:
            for finish in batch:
                if finish.lease not in self._postponed:
                    self._held.discard(finish.lease)
                    finish.left()

    def _postpone(self, finish: Finish) -> None:
        """Try this job again later. It keeps its slot and its lease, and does not delay the others."""
        self._postponed.add(finish.lease)
        asyncio.get_running_loop().call_later(_POSTPONEMENT.total_seconds(), self._resume, finish)

    def _resume(self, finish: Finish) -> None:
        self._postponed.discard(finish.lease)
        self.add(finish)

    # --- one flush ----------------------------------------------------------------------------------------

    async def _flush(self, batch: Sequence[Finish]) -> None:
        settled = await self._commit(batch)
        crash_point("worker.settled")
        self._report(settled)
        await self._acknowledge(settled)
        crash_point("worker.acknowledged")
        if any(answer.status is Status.DEAD_LETTERED for _, answer in settled):
            await self._publish_letters()

    async def _commit(self, batch: Sequence[Finish]) -> list[tuple[Finish, Settled]]:
        """Commit the batch. If the whole batch cannot be committed, commit job by job: a bad job stops no other."""
        try:
            return await self._settle(batch)
        except HoldfastError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - one job's data must not stop the others
            reason = f"{type(error).__name__}: {error}"
        if len(batch) > 1:
            emit(events.BATCH_SPLIT, workload=self._workload.name, jobs=len(batch), reason=reason)
        return [pair for finish in batch for pair in await self._commit_alone(finish)]

    async def _commit_alone(self, finish: Finish) -> list[tuple[Finish, Settled]]:
        try:
            return await self._settle([finish])
        except StoreContended:
            self._postpone(finish)
            return []
        except EffectRefused as error:
            failure = Failure(EFFECT_REFUSED, scrub(error.message), retry=False)
        except Exception as error:  # noqa: BLE001 - the job is at fault, not the worker
            failure = Failure(EFFECT_REFUSED, scrub(f"{type(error).__name__}: {error}"), retry=False)
        subject = Subject(key=finish.key, generation=finish.generation, attempt=finish.attempt, body=finish.body)
        transition = self._decider.dead_letter(subject, failure)
        dead_lettered = replace(finish, transition=transition)
        try:
            return await self._settle([dead_lettered])
        except StoreContended:
            self._postpone(dead_lettered)
            return []
        except Exception as error:  # noqa: BLE001 - the others are settled; this job is claimed again after its lease
            emit_failure(events.WORKER_FAULT, error, workload=self._workload.name)
            return [(finish, Settled(finish.lease.job_id, None))]

    async def _settle(self, batch: Sequence[Finish]) -> list[tuple[Finish, Settled]]:
        """Settle; repeat while the store is away. Settling twice is safe: the fence lets only one write (I4)."""
        settlements = [Settlement(self._workload.name, finish.lease, finish.transition) for finish in batch]
        wait = _FIRST_WAIT
        while True:
            try:
                return list(zip(batch, await self._store.settle(settlements), strict=True))
            except StoreContended:
                raise  # the other transaction may be that of a crashed process: the other jobs should not wait for it
            except StoreUnavailable as error:
                emit(events.STORE_UNAVAILABLE, where="settle", reason=error.message)
                await asyncio.sleep(wait.total_seconds())
                wait = min(wait * 2, _LONGEST_WAIT)

    # --- the queue ----------------------------------------------------------------------------------------

    async def _acknowledge(self, settled: Sequence[tuple[Finish, Settled]]) -> None:
        """Acknowledge in the queue. A queue that is away delivers again, and the claim finds the job settled."""
        acknowledgements = [
            Acknowledgement(finish.delivery, self._handling(finish, answer))
            for finish, answer in settled
            if not answer.stale
        ]
        if not acknowledgements:
            return
        try:
            await self._broker.settle(acknowledgements)
        except BrokerUnavailable as error:
            emit(events.QUEUE_UNAVAILABLE, where="settle", queue=self._workload.queue, reason=error.message)

    def _handling(self, finish: Finish, answer: Settled) -> Handling:
        match finish.transition:
            case Complete(result=result):
                return Finished(result_text(noted_result(result, answer.note)))
            case RetryLater(after=after, code=code, message=message):
                data = body_at_attempt(self._workload, finish.body, finish.attempt + 1)
                return Again(after, data, f"{code}: {message}")
            case Release(after=after):
                return Again(after)
            case MoveToDeadLetters(reason_code=code, reason_message=message, body=body):
                return Failed(f"{code}: {message}", body)  # no more than the dead letter keeps
            case _:
                return Finished()

    async def _publish_letters(self) -> None:
        try:
            await self._projection.publish(self._workload)
        except (BrokerUnavailable, StoreUnavailable) as error:  # maintenance publishes them later
            emit(events.QUEUE_UNAVAILABLE, where="dead letters", reason=error.message)

    # --- the log ------------------------------------------------------------------------------------------

    def _report(self, settled: Sequence[tuple[Finish, Settled]]) -> None:
        now = self._clock.monotonic()
        for finish, answer in settled:
            name = events.ATTEMPT_STALE if answer.stale else events.ATTEMPT_SETTLED
            emit(
                name,
                workload=self._workload.name,
                key=finish.key,
                attempt=finish.attempt,
                outcome=answer.status.value if answer.status else "stale",
                note=answer.note,
                error_code=getattr(finish.transition, "code", None),
                duration_ms=round((now - finish.started) * 1000, 1),
                trace_id=finish.labels.get("traceId"),
            )
            if isinstance(finish.transition, MoveToDeadLetters) and not answer.stale:
                emit(
                    events.JOB_DEAD_LETTERED,
                    workload=self._workload.name,
                    key=finish.key,
                    letter=finish.transition.letter_id,
                    reason_code=finish.transition.reason_code,
                )
