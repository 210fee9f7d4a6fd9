"""The reviewer: reviews dead letters, replays each once, closes those that failed again, and remembers.

Dead courier events are not touched, so that letters of every state are there at the end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

from .load import OPERATOR
from .raw_http import Answer, NoAnswer, NotSent, request

_LETTERS = "/v1/dead-letters"
_DECISION = json.dumps({"actor": "ana", "reason": "chaos"}).encode()


class Reviewer:
    """Works with gateways that are killed all the time. After an unknown answer she asks again, as a person would."""

    def __init__(self, chance: Random, addresses: Callable[[], list[str]], *, pause: float = 0.05) -> None:
        self.asked: set[str] = set()
        """Letters whose replay was asked for at least once. No other letter may ever be replayed."""
        self.replayed: set[str] = set()
        """Letters whose replay was acknowledged."""
        self._chance = chance
        self._addresses = addresses
        self._pause = pause
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        while not self._stop.is_set():
            for status, act in (("reviewed", self._settle), ("pending", self._review)):
                for letter in await self._list(status):
                    if not self._stop.is_set():
                        await act(letter)
            await asyncio.sleep(self._pause)

    async def _list(self, status: str) -> list[dict[str, Any]]:
        answer = await self._ask("GET", f"{_LETTERS}?reviewStatus={status}&workload=counted&limit=5")
        return answer.document["items"] if answer and answer.status == 200 else []

    async def _review(self, letter: dict[str, Any]) -> None:
        await self._ask("POST", f"{_LETTERS}/{letter['id']}/review", _DECISION)

    async def _settle(self, letter: dict[str, Any]) -> None:
        if letter["generation"] != 1:
            await self._ask("POST", f"{_LETTERS}/{letter['id']}/close", _DECISION)
            return
        self.asked.add(letter["id"])
        path = f"{_LETTERS}/{letter['id']}/replay"
        # Asked twice at once now and then: a letter is replayed at most once all the same (I9).
        times = 2 if self._chance.random() < 0.2 else 1
        for answer in await asyncio.gather(*(self._ask("POST", path, _DECISION) for _ in range(times))):
            if answer and answer.status == 200:
                assert letter["id"] not in self.replayed, "one letter's replay was acknowledged twice"
                self.replayed.add(letter["id"])

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Answer | None:
        addresses = self._addresses()
        if not addresses:
            return None
        try:
            return await request(self._chance.choice(addresses), method, path, OPERATOR, body)
        except (NotSent, NoAnswer):
            return None
