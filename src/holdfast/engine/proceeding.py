"""The point of no return: committed before a handler does something irreversible (I11).

Handlers share commits: calls that arrive during a commit go into the next commit.
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
    """Commits the points of no return of one workload, in one process."""

    def __init__(self, workload: str, store: Store) -> None:
        self._workload = workload
        self._store = store
        self._group_commit = GroupCommit(_MOST_IN_ONE_COMMIT, self._commit)

    async def proceed(self, lease: Lease, effects: Sequence[Effect], *, repeatable: bool) -> None:
        """Return once the mark is committed. Raises the errors of :meth:`Context.proceed` and those of the store."""
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
        except Exception as error:  # noqa: BLE001 - raised in the handlers that wait
            if len(batch) > 1 and not _away(error):  # one job may be at fault, or its records may be locked
                for each in batch:
                    await self._commit([each])
                return
            for each in batch:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, answer in zip(batch, settled, strict=True):
            if not each.answer.done():  # its handler was cancelled: the mark stays, and nothing was done
                each.answer.set_result(answer)


def _away(error: Exception) -> bool:
    """Whether the store itself failed, for all jobs alike."""
    return type(error) is StoreUnavailable
