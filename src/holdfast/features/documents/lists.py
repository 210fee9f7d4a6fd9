"""Jobs from a plain Redis list, for producers that have no BullMQ (D22).

A worker moves a job, in one step of Redis, to a second list, where the job stays until the ledger has it. All workers
share the second list, and no worker owns a job on it. A job that stays there for a while was left by a worker that
crashed, and any worker records it. Recording a job twice makes one entry, because the job's text decides its identity.
So no job is lost between the list and the ledger, and no job runs twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from holdfast import Adopt, crash_point

_MOST: Final = 50
_WAIT: Final = timedelta(seconds=1)


class Lists(Protocol):
    """The two lists: jobs come from ``doc_jobs``, dead letters go to ``doc_jobs_dead``."""

    async def take(self, most: int, wait: timedelta) -> list[bytes]:
        """Take up to ``most`` jobs, oldest first, and wait for the first. They stay in Redis until :meth:`remove`."""
        ...

    async def taken(self, most: int) -> list[bytes]:
        """Up to ``most`` jobs that were taken and not removed, by any process, oldest first."""
        ...

    async def remove(self, values: Sequence[bytes]) -> None:
        """Remove jobs that the ledger has."""
        ...

    async def send(self, letters: Mapping[str, str], keep: timedelta) -> bool:
        """Push each letter once; its id is remembered for ``keep``. False if the Redis key is not a list."""
        ...


class ListReader:
    """Records jobs from the list in the ledger. A job that was taken ``left_after`` ago was left by a crash."""

    name = "doc_jobs list"

    def __init__(self, lists: Lists, adopt: Adopt, left_after: timedelta) -> None:
        self._lists = lists
        self._adopt = adopt
        self._left_after = left_after.total_seconds()
        self._held: list[bytes] = []
        self._seen: set[bytes] = set()
        self._checked = float("-inf")

    async def step(self) -> None:
        """Record the jobs of the list. Jobs that could not be recorded are held, and come first the next time."""
        self._held = self._held or await self._left_behind() or await self._lists.take(_MOST, _WAIT)
        if not self._held:
            return
        crash_point("lists.taken")
        await self._adopt([each.decode(errors="replace") for each in self._held])
        crash_point("lists.recorded")
        await self._lists.remove(self._held)
        self._held = []

    async def _left_behind(self) -> list[bytes]:
        """Taken jobs that were there at the last check too."""
        now = time.monotonic()
        if now - self._checked < self._left_after:
            return []
        there = await self._lists.taken(_MOST)
        left = [each for each in there if each in self._seen]
        self._seen, self._checked = set(there), now
        return left
