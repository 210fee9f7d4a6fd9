"""Dead letters for tests: whole ones, because a listing leaves out the body, the attempts and the decisions."""

from __future__ import annotations

from typing import Any

from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.queries import LetterQuery, Page


async def whole_letters(store: Any, query: LetterQuery, limit: int = 100) -> list[DeadLetter]:
    """The dead letters that match, oldest first."""
    found = await store.letters(query, Page(limit))
    return [await store.letter(each.id) for each in found.items]
