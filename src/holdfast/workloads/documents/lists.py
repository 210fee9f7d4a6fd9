"""Jobs from a plain list of Redis, for producers that have no BullMQ (specification 003, section 5).

A job that is taken goes onto a list of our own, in one step of Redis, and stays there until the ledger has it. That
list is shared by all workers, and nobody owns what is on it: a job that has been there for a while was left behind by
a worker that died, and any worker records it. To record a job twice is to record it once, because its text decides its
identity. So nothing is lost between the list and the ledger, and nothing runs twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.workload import Adopt

_MOST: Final = 50
_WAIT: Final = timedelta(seconds=1)


class Lists(Protocol):
    """The two lists: ``doc_jobs``, that jobs come from, and ``doc_jobs_dead``, that dead letters go to."""

    async def take(self, most: int, wait: timedelta) -> list[bytes]:
        """Take up to ``most`` jobs, oldest first, and wait for the first. They are kept until they are removed."""
        ...

    async def taken(self, most: int) -> list[bytes]:
        """Up to ``most`` jobs that were taken and not removed, by any process, oldest first."""
        ...

    async def remove(self, values: Sequence[bytes]) -> None:
        """The ledger has these."""
        ...

    async def send(self, letters: Mapping[str, str], keep: timedelta) -> bool:
        """Push each letter once; its id is known for ``keep``. False where something else is in the list's place."""
        ...


class ListReader:
    """Brings jobs from the list into the ledger. Jobs that have been taken for ``left_after`` were left behind."""

    name = "doc_jobs list"

    def __init__(self, lists: Lists, adopt: Adopt, left_after: timedelta) -> None:
        self._lists = lists
        self._adopt = adopt
        self._left_after = left_after.total_seconds()
        self._held: list[bytes] = []
        self._seen: set[bytes] = set()
        self._looked = float("-inf")

    async def step(self) -> None:
        """Record what the list has. What could not be recorded is held, and comes first the next time."""
        self._held = self._held or await self._left_behind() or await self._lists.take(_MOST, _WAIT)
        if not self._held:
            return
        crash_point("lists.taken")
        await self._adopt([each.decode(errors="replace") for each in self._held])
        crash_point("lists.recorded")
        await self._lists.remove(self._held)
        self._held = []

    async def _left_behind(self) -> list[bytes]:
        """Jobs that were there already at the last look."""
        now = time.monotonic()
        if now - self._looked < self._left_after:
            return []
        there = await self._lists.taken(_MOST)
        left = [each for each in there if each in self._seen]
        self._seen, self._looked = set(there), now
        return left
