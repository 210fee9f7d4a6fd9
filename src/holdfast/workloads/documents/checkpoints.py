"""Checkpoints: what is read of a file is committed while the reading goes on, and never read again.

They are documents of the store, written under the job's lease: a worker that has lost it writes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.contracts.effects import Effect, Upsert
from holdfast.contracts.times import isoformat
from holdfast.contracts.workload import Context

from .records import UNITS, unit_id

_AT_ONCE: Final = 32
_MOST_IN_ONE_COMMIT: Final = 200


async def units_of(context: Context, work: str) -> list[dict[str, Any]]:
    """What earlier attempts have read of this work: the units from the first on, without a gap."""
    found: list[dict[str, Any]] = []
    while True:
        keys = [unit_id(work, index) for index in range(len(found), len(found) + _AT_ONCE)]
        for document in await asyncio.gather(*(context.get(UNITS, key) for key in keys)):
            if document is None:
                return found
            found.append(document["result"])


class Checkpoints:
    """Commits units in the order they come, those that come during a commit together in the next.

    ``commit`` writes effects under the job's lease; ``reached`` says how far the job is, and is written with them.
    """

    def __init__(
        self,
        work: str,
        commit: Callable[[Sequence[Effect]], Awaitable[None]],
        reached: Callable[[int], Effect],
        *,
        keep: timedelta,
    ) -> None:
        self._work = work
        self._commit = commit
        self._reached = reached
        self._keep = keep
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._committing: asyncio.Task[None] | None = None

    def add(self, index: int, result: dict[str, Any]) -> None:
        """Commit this unit soon. Raises what an earlier commit failed with, such as a lost lease."""
        self._waiting.append((index, result))
        if self._committing is not None and self._committing.done():
            self._committing.result()
            self._committing = None
        if self._committing is None:
            self._committing = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Return when all are committed."""
        if self._committing is not None:
            await self._committing

    async def give_up(self) -> None:
        """Return when nothing is under way."""
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting[:_MOST_IN_ONE_COMMIT]
            del self._waiting[:_MOST_IN_ONE_COMMIT]
            until = isoformat(datetime.now(UTC) + self._keep)
            effects: list[Effect] = [
                Upsert(UNITS, unit_id(self._work, index), {"result": result, "expires_at": until})
                for index, result in batch
            ]
            await self._commit([*effects, self._reached(batch[-1][0] + 1)])
