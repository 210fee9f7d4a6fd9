"""Group commit: items that arrive during a commit go into the next commit. Nothing waits for a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class GroupCommit(Generic[Item]):
    """Calls ``commit`` with batches of at most ``most`` items, one batch after another, in their order.

    ``commit`` must handle its errors: an error that it raises ends the work on the items that still wait.
    """

    def __init__(self, most: int, commit: Callable[[Sequence[Item]], Awaitable[None]]) -> None:
        self._most = most
        self._commit = commit
        self._waiting: list[Item] = []
        self._working: asyncio.Task[None] | None = None

    def add(self, item: Item) -> None:
        """Add an item to the next batch. The batch starts at once if no commit is under way."""
        self._waiting.append(item)
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def idle(self) -> None:
        """Return when nothing waits and nothing is under way."""
        while self._working is not None:
            await asyncio.wait({self._working})

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._most]
                del self._waiting[: self._most]
                await self._commit(batch)
        finally:
            self._working = None
