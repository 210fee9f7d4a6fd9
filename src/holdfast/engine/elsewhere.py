"""Jobs that somebody else's worker finished: Node's, beside ours or instead of ours, on the same queues.

Such a worker knows nothing of the ledger. Without this, maintenance would take its jobs for lost ones and publish them
again for ever. We settle before we tell the queue: so what the queue says is finished, while the ledger says it is not,
was finished elsewhere. The queue says so as long as it keeps the job, and after that in its history of events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.contracts.ledger import Claimed, DueEntry, Lease, NotNow
from holdfast.contracts.personal_data import find_personal_data
from holdfast.contracts.ports import Ambient, Broker, Store
from holdfast.contracts.queues import WorkedElsewhere
from holdfast.contracts.redaction import scrub
from holdfast.contracts.transitions import WORKED_ELSEWHERE, Complete, MoveToDeadLetters, Settlement
from holdfast.contracts.workload import Failure, Workload
from holdfast.telemetry import emit, events

from .ending import end
from .hooks import Hooks
from .in_flight import Held
from .transitions import Decider, Subject

FAILED_ELSEWHERE: Final = "FAILED_ELSEWHERE"

_NAME: Final = "elsewhere"
"""The worker's name in the attempt: nobody told us the real one."""
_SHORT_LEASE: Final = timedelta(seconds=30)
_AS_OFTEN_AS_IT_WAS: Final = 1_000_000
"""How many attempts such a job may have: it was tried, whatever our policy says."""
_OLDEST: Final = "0"
_MOST_PAGES: Final = 50
_QUIET: Final = timedelta(minutes=10)
"""A queue's history is read whole until nobody else has finished a job for so long."""
_MOST_POSTPONED: Final = 10_000
_LONGEST_RESULT: Final = 64 * 1024


class _Following:
    """A queue that other people's workers work on: how far its history was read, and what could not be settled yet."""

    def __init__(self) -> None:
        self.position = _OLDEST
        self.last_seen = 0.0
        self.postponed: dict[str, WorkedElsewhere] = {}


class Elsewhere:
    """Notices what other people's workers finish, and settles it in the ledger."""

    def __init__(self, store: Store, broker: Broker, ambient: Ambient) -> None:
        self._store = store
        self._broker = broker
        self._ambient = ambient
        self._following: dict[str, _Following] = {}
        self._unsure: set[str] = set()

    async def follow(self, workload: Workload[Any]) -> int:
        """Settle what others finished since the last look. A glance, as long as nobody else works on the queue."""
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
        """Settle jobs whose end the queue has told; return how many."""
        settled, _ = await self._settle(workload, [pair for pair in found if not pair[0].foreign])
        return settled

    def unsure(self, workload: Workload[Any], jobs: int) -> None:
        """These are gone from the queue and are published again; where others work too, they may be done twice."""
        if jobs and workload.queue in self._following and workload.queue not in self._unsure:
            self._unsure.add(workload.queue)
            emit(events.QUEUE_UNSURE, queue=workload.queue, workload=workload.name, jobs=jobs)

    async def _settle(
        self, workload: Workload[Any], found: Sequence[tuple[DueEntry, WorkedElsewhere]]
    ) -> tuple[int, dict[str, WorkedElsewhere]]:
        """Settle; return how many, and what has to wait: a worker of ours holds it, or its time has not come."""
        # What ended before a person replayed the job says nothing about the replay.
        ended = {entry.job_id: each for entry, each in found if entry.generation == 1 or each.at > entry.changed_at}
        if not ended:
            return 0, {}
        claims = await self._store.claim(
            workload.name, list(ended), worker=_NAME, lease=_SHORT_LEASE, max_attempts=_AS_OFTEN_AS_IT_WAS
        )
        decider, hooks = Decider(workload, self._ambient.random), Hooks(workload)
        settlements = []
        for claim in claims:
            if isinstance(claim, Held):
                transition = _transition(workload, decider, hooks, claim, ended[claim.job_id])
                settlements.append(Settlement(workload.name, Lease(claim.job_id, claim.fence), transition))
        outcomes = {each.job_id: each.status for each in await end(self._store, settlements) if each.status is not None}
        for job_id, status in outcomes.items():
            emit(events.JOB_WORKED_ELSEWHERE, workload=workload.name, job_id=job_id, outcome=status.value)
        postponed = [claim.job_id for claim in claims if isinstance(claim, NotNow)]
        return len(outcomes), {job_id: ended[job_id] for job_id in postponed[:_MOST_POSTPONED]}


def _transition(
    workload: Workload[Any],
    decider: Decider,
    hooks: Hooks,
    claim: Held,
    ended: WorkedElsewhere,
) -> Complete | MoveToDeadLetters:
    subject = Subject(
        key=claim.key,
        generation=claim.generation,
        attempt=claim.attempt if isinstance(claim, Claimed) else 0,
        body=claim.body,
        data=hooks.data_of(claim.body),
    )
    if ended.failure is not None:
        failure = Failure(FAILED_ELSEWHERE, scrub(f"Another system's worker gave it up: {ended.failure}"), retry=False)
        return decider.dead_letter(subject, failure)
    result = _result(ended.result)
    return Complete(workload.retention, hooks.worked_elsewhere(subject.standing, result), result, note=WORKED_ELSEWHERE)


def _result(text: str) -> Mapping[str, Any] | None:
    """What the other worker returned, where the ledger may keep it (I14)."""
    if len(text) > _LONGEST_RESULT or find_personal_data(text) is not None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) or value is None else {"returnvalue": value}
