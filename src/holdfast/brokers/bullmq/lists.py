"""Plain lists beside the queues, for programs without BullMQ: they LPUSH jobs, and BRPOP dead letters.

    <jobs>                              list  the jobs that other programs push, newest on the left
    {<jobs>}:holdfast-taken:<prefix>    list  jobs that we took and the ledger may not have yet
    <letters>                           list  the dead letters that we push, newest on the left
    {<letters>}:holdfast-sent:<prefix>  zset  ids of the letters that were pushed, by the millisecond of the push

The braces keep a list and its second key on one node of a Redis Cluster. The prefix of the queues separates the taken
jobs of two installations with different ledgers. No key of a queue is one of these keys: a queue's key begins with the
prefix, and the configuration refuses a list whose name is the prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from holdfast.contracts.errors import BrokerUnavailable
from holdfast.contracts.times import duration_ms

from .link import Argument, Link
from .scripts import load_list_scripts

_MOST_LETTERS: Final = 50
"""Letters in one script."""


class RedisLists:
    """A list that jobs are taken from, and a list that dead letters are put onto."""

    def __init__(self, url: str, prefix: str, *, jobs: str, letters: str) -> None:
        self._link = Link(url, prefix)
        self._jobs = [jobs, f"{{{jobs}}}:holdfast-taken:{prefix}"]
        self._letters = [letters, f"{{{letters}}}:holdfast-sent:{prefix}"]
        self._client_name = f"{prefix}:holdfast-lists"
        self._scripts = load_list_scripts()

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    async def take(self, most: int, wait: timedelta) -> list[bytes]:
        """Take up to ``most`` jobs, oldest first; wait for the first job. Redis keeps the jobs until ``remove``."""
        command = ("BLMOVE", *self._jobs, "RIGHT", "LEFT")
        first = await self._link.wait_for(command, wait.total_seconds(), self._client_name)
        if first is None:
            return []
        try:
            return [first, *await self._link.run_once(self._scripts.take, self._jobs, [most - 1])]
        except BrokerUnavailable:  # if the script took more jobs, `taken` returns them
            return [first]

    async def taken(self, most: int) -> list[bytes]:
        """Jobs that any process took and did not remove: up to ``most``, oldest first."""
        found: list[bytes] = await self._link.call("LRANGE", self._jobs[1], -most, -1)
        return found[::-1]

    async def remove(self, values: Sequence[bytes]) -> None:
        """Remove taken jobs, because the ledger has them."""
        # Run twice, the script may remove an equal job that was pushed meanwhile: the ledger has that job too.
        await self._link.run(self._scripts.remove, self._jobs[1:], values)

    # --- dead letters -------------------------------------------------------------------------------------

    async def send(self, letters: Mapping[str, str], keep: timedelta) -> bool:
        """Push letters that were not pushed before; False when the key is no list. Ids are remembered for ``keep``."""
        pairs = list(letters.items())
        for start in range(0, len(pairs), _MOST_LETTERS):
            arguments: list[Argument] = [duration_ms(keep)]
            for letter_id, text in pairs[start : start + _MOST_LETTERS]:
                arguments += (letter_id, text)
            if not await self._link.run(self._scripts.send, self._letters, arguments):
                return False
        return True
