"""The point of no return: committed before a handler does what cannot be undone (I11).

Handlers that come to it together share a commit: whatever arrives while one is under way goes into the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.crash_points import crash_point
from holdfast.contracts.effects import Effect
from holdfast.contracts.errors import DeadlinePassed, LeaseLost, StoreUnavailable
from holdfast.contracts.ledger import Lease
from holdfast.contracts.ports import Store
from holdfast.contracts.transitions import OVERDUE, Proceed, Settled, Settlement

from .group_commit import GroupCommit

_MOST_IN_ONE_COMMIT: Final = 100


@dataclass(slots=True)
class _Request:
    settlement: Settlement
    answer: asyncio.Future[Settled]


class Proceeding:
    """Lets the jobs of one workload pass, in one process."""

    def __init__(self, workload: str, store: Store) -> None:
        self._workload = workload
        self._store = store
        self._group_commit = GroupCommit(_MOST_IN_ONE_COMMIT, self._commit)

    async def proceed(self, lease: Lease, effects: Sequence[Effect], *, repeatable: bool) -> None:
        """Return once the mark is committed. Raises what :meth:`Context.proceed` promises, or what the store raises."""
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        transition = Proceed(tuple(effects), repeatable)
        self._group_commit.add(_Request(Settlement(self._workload, lease, transition), answer))
        settled = await answer
        if settled.stale:
            raise LeaseLost
        if settled.note == OVERDUE:
            raise DeadlinePassed
        crash_point("worker.proceeded")

    async def _commit(self, batch: Sequence[_Request]) -> None:
        crash_point("worker.proceeding")
        try:
            settled = await self._store.settle([each.settlement for each in batch])
        except Exception as error:  # noqa: BLE001 - told to the handlers that wait for it
            if len(batch) > 1 and not _away(error):  # one of them may be at fault, or be held by somebody
                for each in batch:
                    await self._commit([each])
                return
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, answer in zip(batch, settled, strict=True):
            if not each.answer.done():  # its handler was cancelled: the mark stands, and nothing was done
                each.answer.set_result(answer)


def _away(error: Exception) -> bool:
    """Whether it is the store that failed, for everybody alike."""
    return type(error) is StoreUnavailable
