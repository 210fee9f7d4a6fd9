"""Publishing dead letters: the dead-letter queue is a projection of the store (I8).

A letter is marked as published after the queue has it. A crash in between publishes it again under the same id,
which the queue leaves as it is; so the projection can lag, but never loses and never doubles. A letter that is dealt
with is marked as cancelled after the queue has forgotten it; a crash in between makes the queue forget it again.
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
    """Brings dead letters to their queues."""

    def __init__(self, store: Store, broker: Broker) -> None:
        self._store = store
        self._broker = broker

    async def publish(self, workload: Workload[Any]) -> int:
        """Publish this workload's letters that the queue lacks; return how many."""
        published = 0
        while letters := await self._store.letters_to_publish(workload.name, _BATCH):
            queue = await self._broker.epoch()  # asked before publishing: were it lost in between, it will show
            crash_point("letters.settled")
            jobs = [_job(workload, letter) for letter in letters]
            await self._broker.publish(workload.dead_letter_queue, jobs)
            crash_point("letters.published")
            await _copy(workload, jobs)
            marked = await self._store.mark_published([letter.id for letter in letters], queue)
            published += len(letters)
            if not marked or len(letters) < _BATCH:
                break
        return published

    async def unpublish(self, workload: Workload[Any], letter_ids: list[str]) -> None:
        """Take letters off the queue that people have dealt with, or whose retention is over."""
        await self._broker.remove(workload.dead_letter_queue, letter_ids)
        await self._store.mark_unpublished(letter_ids)

    async def tidy(self, workload: Workload[Any]) -> int:
        """Cancel letters that were dealt with while a process or the queue was away; return how many."""
        unpublished = 0
        while letter_ids := await self._store.letters_to_unpublish(workload.name, _BATCH):
            await self.unpublish(workload, letter_ids)
            unpublished += len(letter_ids)
            if len(letter_ids) < _BATCH:
                break
        return unpublished


async def _copy(workload: Workload[Any], jobs: Sequence[QueueJob]) -> None:
    """Let the workload bring them elsewhere too. Only a place that is away is a reason to do all of it again."""
    try:
        await workload.copy_letters({job.job_id: job.data for job in jobs})
    except (BrokerUnavailable, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - a workload's own code: the letters are where they belong
        report_failure(workload, "copy_letters", error)


def _job(workload: Workload[Any], letter: DeadLetter) -> QueueJob:
    payload = call_hook(
        workload,
        "dead_letter_payload",
        lambda: _to_json(workload.dead_letter_payload(letter)),
        lambda: _to_json(Workload.dead_letter_payload(workload, letter)),
    )
    # Whoever reads the queue and is done with a letter does not want to hear of it again.
    return QueueJob(letter.id, payload, "dead-letter", revive=False)


def _to_json(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
