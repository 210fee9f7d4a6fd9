"""Jobs that another system's worker finished, for example a worker in Node on the same queues.

Such a worker does not write to the ledger. Without this module, maintenance would take its jobs for lost and publish
them again for ever. Our workers settle the ledger before they acknowledge the queue. So a job that is finished in the
queue and open in the ledger was finished elsewhere. The queue shows this as long as it keeps the job, and after that in
its history of events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.ledger import DueEntry, NotNow
from holdfast.contracts.outcomes import Reason
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.queues import WorkedElsewhere
from holdfast.contracts.redaction import find_personal_data, scrub
from holdfast.contracts.transitions import Ending
from holdfast.contracts.workload import Workload
from holdfast.telemetry import emit, events

from .settling import end
from .transitions import Decider, RunningJob

FAILED_ELSEWHERE: Final = "FAILED_ELSEWHERE"

_NAME: Final = "elsewhere"
"""The worker's name in the attempt: the real name is not known."""
_NO_ATTEMPT_LIMIT: Final = 1_000_000
"""Such a job was tried already, so the limit of our policy does not count."""
_OLDEST: Final = "0"
_MOST_PAGES: Final = 50
_QUIET: Final = timedelta(minutes=10)
"""The whole history of a queue is read until no other worker has finished a job for so long."""
_MOST_POSTPONED: Final = 10_000
_LONGEST_RESULT: Final = 64 * 1024


class _Following:
    """A queue with workers of another system: how far its history was read, and what could not be settled yet."""

    def __init__(self) -> None:
        self.position = _OLDEST
        self.last_seen = 0.0
        self.postponed: dict[str, WorkedElsewhere] = {}


class Elsewhere:
    """Settles in the ledger what workers of another system have finished."""

    def __init__(self, store: Store, broker: Broker, ambient: Ambient) -> None:
        self._store = store
        self._broker = broker
        self._ambient = ambient
        self._following: dict[str, _Following] = {}
        self._unsure: set[str] = set()

    async def follow(self, workload: Workload[Any]) -> int:
        """Settle what others have finished since the last call. A cheap check, if only our workers use the queue."""
        queue = workload.queue
        following = self._following.get(queue)
        if following is None:
            if not (await self._broker.history(queue)).ended:
                return 0
            following = self._following[queue] = _Following()
            emit(events.QUEUE_SHARED, queue=queue, workload=workload.name)
        now = self._ambient.clock.monotonic()
        ended = dict(following.postponed)
        for _ in range(_MOST_PAGES):
            history = await self._broker.history(queue, following.position)
            ended |= {each.job_id: each for each in history.ended}
            following.position = history.position or _OLDEST
            if history.ended:
                following.last_seen = now
            if not history.more:
                break
        if not ended:
            if now - following.last_seen > _QUIET.total_seconds():
                del self._following[queue]
            return 0
        entries = await self._store.unsettled(workload.name, list(ended))
        found = [(entry, ended[entry.job_id]) for entry in entries]
        settled, following.postponed = await self._settle(workload, found)
        return settled

    async def settle(self, workload: Workload[Any], found: Sequence[tuple[DueEntry, WorkedElsewhere]]) -> int:
        """Settle jobs that are finished in the queue; return how many."""
        settled, _ = await self._settle(workload, [pair for pair in found if not pair[0].foreign])
        return settled

    def warn_of_republishing(self, workload: Workload[Any], jobs: int) -> None:
        """Emit once that jobs are published again, if others work on the queue too: jobs may be done twice."""
        if jobs and workload.queue in self._following and workload.queue not in self._unsure:
            self._unsure.add(workload.queue)
            emit(events.QUEUE_UNSURE, queue=workload.queue, workload=workload.name, jobs=jobs)

    async def _settle(
        self, workload: Workload[Any], found: Sequence[tuple[DueEntry, WorkedElsewhere]]
    ) -> tuple[int, dict[str, WorkedElsewhere]]:
        """Settle; return how many, and the jobs that have to wait: our worker holds them, or they are not due."""
        # What ended before a person replayed the job is not the end of the replay.
        ended = {entry.job_id: each for entry, each in found if entry.generation == 1 or each.at > entry.changed_at}
        if not ended:
            return 0, {}
        decider = Decider(workload, self._ambient.random)

        def decide(job: RunningJob) -> Ending:
            each = ended[job.claim.job_id]
            if each.failure is None:
                return decider.elsewhere(job, _result(each.result))
            message = scrub(f"Another system's worker gave it up: {each.failure}")
            return decider.dead_letter(job, Reason(FAILED_ELSEWHERE, message))

        settled, claims = await end(
            self._store, workload, list(ended), decide, worker=_NAME, max_attempts=_NO_ATTEMPT_LIMIT
        )
        outcomes = {each.job_id: each.status for each in settled if each.status is not None}
        for job_id, status in outcomes.items():
            emit(events.JOB_WORKED_ELSEWHERE, workload=workload.name, job_id=job_id, outcome=status.value)
        postponed = [claim.job_id for claim in claims if isinstance(claim, NotNow)]
        return len(outcomes), {job_id: ended[job_id] for job_id in postponed[:_MOST_POSTPONED]}


def _result(text: str) -> Mapping[str, Any] | None:
    """What the other worker returned, if the ledger may keep it (I14)."""
    if len(text) > _LONGEST_RESULT or find_personal_data(text) is not None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) or value is None else {"returnvalue": value}
