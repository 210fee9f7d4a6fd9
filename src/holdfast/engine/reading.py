"""Shared reads: records that several callers want at the same moment are read together.

A store needs one round trip for the records of many jobs. Calls of one moment share a read, and calls
that arrive while as many reads as allowed are under way share the next. Nothing waits for a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.contracts.errors import StoreUnavailable
from holdfast.contracts.ports import Records

from .group_commit import GroupCommit

_MOST_CALLS: Final = 50
_READS_AT_A_TIME: Final = 4

Record = Mapping[str, Any]
Name = tuple[str, str]
"""A collection and a key."""


@dataclass(slots=True)
class _Call:
    wanted: Sequence[Name]
    answer: asyncio.Future[list[Record | None]]


class Reading:
    """Reads records for the callers of one process. A record is never older than the call that asked for it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._calls = GroupCommit(_MOST_CALLS, self._read, _READS_AT_A_TIME)

    async def get_many(self, wanted: Sequence[Name]) -> list[Record | None]:
        """See :meth:`holdfast.contracts.ports.Records.get_many`. Callers get the same object for the same record."""
        answer: asyncio.Future[list[Record | None]] = asyncio.get_running_loop().create_future()
        self._calls.add(_Call(wanted, answer))
        return await answer

    async def _read(self, calls: Sequence[_Call]) -> None:
        wanted = list(dict.fromkeys(name for call in calls for name in call.wanted))
        try:
            found = dict(zip(wanted, await self._records.get_many(wanted), strict=True))
        except Exception as error:  # noqa: BLE001 - raised in the callers
            if len(calls) > 1 and type(error) is not StoreUnavailable:  # one call may be at fault
                for call in calls:
                    await self._read([call])
                return
            for call in calls:
                if not call.answer.done():
                    call.answer.set_exception(error)
            return
        for call in calls:
            if not call.answer.done():  # its caller was cancelled
                call.answer.set_result([found[name] for name in call.wanted])
