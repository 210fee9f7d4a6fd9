"""Group commit: items that arrive during a commit go into the next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class GroupCommit(Generic[Item]):
    """Calls ``commit`` with batches of at most ``most`` items, in their order, ``parallel`` batches at a time.

    ``commit`` must handle its errors: an error that it raises ends the work on the items that still wait. ``gather`` is
    awaited before each batch, while other items may come.
    """

    def __init__(
        self,
        most: int,
        commit: Callable[[Sequence[Item]], Awaitable[None]],
        parallel: int = 1,
        gather: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._most = most
        self._commit = commit
        self._parallel = parallel
        self._gather = gather
        self._waiting: list[Item] = []
        self._working: set[asyncio.Task[None]] = set()

    def add(self, item: Item) -> None:
        """Add an item to the next batch. The batch starts at once, unless enough commits are under way."""
        self._waiting.append(item)
        # If other items wait too, the commit that was started for them takes this item as well.
        if not self._working or (len(self._waiting) == 1 and len(self._working) < self._parallel):
            self._working.add(asyncio.get_running_loop().create_task(self._work()))

    @property
    def waiting(self) -> int:
        """How many items are in no batch yet."""
        return len(self._waiting)

    async def idle(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._working:
            await asyncio.wait(set(self._working))

    async def stop(self) -> None:
        """Cancel the commits under way, and forget what waits."""
        self._waiting.clear()
        working = set(self._working)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        self._working -= working  # a task that was cancelled before it began has not done so

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self._gather is not None:
                    await self._gather()
                batch = self._waiting[: self._most]
                del self._waiting[: self._most]
                if batch:  # another task may have taken all items meanwhile
                    await self._commit(batch)
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._working.discard(task)
