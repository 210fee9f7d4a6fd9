"""Publishing dead letters: the dead-letter queue is a projection of the store (I8).

A letter is marked as published after the queue has it. After a crash in between, the letter is published again under
the same id, and the queue keeps the first copy. So the queue can be late, but no letter is lost or doubled. A replayed
or closed letter is marked as unpublished after the queue has removed it. After a crash in between, it is removed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.errors import BrokerUnavailable, StoreUnavailable
from holdfast.contracts.ports import Broker, Store
from holdfast.contracts.queues import QueueJob
from holdfast.contracts.workload import Workload

from .hooks import call_hook, report_failure

_BATCH: Final = 200


class Projection:
    """Publishes dead letters to their queues, and removes them again."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def publish(self, workload: Workload[Any]) -> int:
        """Publish this workload's letters that the queue lacks; return how many."""
        published = 0
        while letters := await self._store.letters_to_publish(workload.name, _BATCH):
            # Read before publishing: if the queue is lost in between, the store has another epoch.
            queue = await self._broker.epoch()
            crash_point("letters.settled")
            jobs = [_job(workload, letter) for letter in letters]
            await self._broker.publish(workload.dead_letter_queue, jobs)
            crash_point("letters.published")
            await _copy(workload, jobs)
            marked = await self._store.mark_published([letter.id for letter in letters], queue)
            published += len(letters)
            if not marked:
                break
        return published

    async def unpublish(self, workload: Workload[Any], letter_ids: list[str]) -> None:
        """Remove letters from the queue that are replayed or closed, or whose retention is over."""
        await self._broker.remove(workload.dead_letter_queue, letter_ids)
        await self._store.mark_unpublished(letter_ids)

    async def tidy(self, workload: Workload[Any]) -> int:
        """Remove letters that were replayed or closed while a process or the queue was away; return how many."""
        unpublished = 0
        while letter_ids := await self._store.letters_to_unpublish(workload.name, _BATCH):
            await self.unpublish(workload, letter_ids)
            unpublished += len(letter_ids)
            if len(letter_ids) < _BATCH:
                break
        return unpublished


async def _copy(workload: Workload[Any], jobs: Sequence[QueueJob]) -> None:
    """Let the workload copy the letters elsewhere. Only if that place is away, everything is repeated later."""
    try:
        await workload.copy_letters({job.job_id: job.data for job in jobs})
    except (BrokerUnavailable, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - a workload's own code: the queue has the letters
        report_failure(workload, "copy_letters", error)


def _job(workload: Workload[Any], letter: DeadLetter) -> QueueJob:
    payload = call_hook(
        workload,
        "dead_letter_payload",
        lambda: _to_json(workload.dead_letter_payload(letter)),
        lambda: _to_json(Workload.dead_letter_payload(workload, letter)),
    )
    # A reader of the queue that has finished a letter must not get the letter again.
    return QueueJob(letter.id, payload, "dead-letter", revive=False)


def _to_json(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
