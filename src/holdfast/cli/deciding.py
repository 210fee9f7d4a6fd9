"""Decisions about dead letters: who decides, why, and the result for each letter."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from holdfast.api.operators import DecisionBody
from holdfast.contracts.dead_letters import DeadLetter
from holdfast.contracts.errors import NotFound, ReviewRefused
from holdfast.contracts.validation import sentence_of

from .failures import REFUSED, Stop
from .output import print_json, say


def decision(actor: str | None, reason: str) -> DecisionBody:
    """Actor and reason, checked by the same rules as over HTTP."""
    try:
        return DecisionBody(actor=actor or user_name(), reason=reason)
    except ValidationError as error:
        sentences = [f"--{each['loc'][0]} {sentence_of(each)}." for each in error.errors(include_url=False)]
        raise Stop(*sentences) from None


def user_name() -> str:
    """The name of the user who runs this program. Raises :class:`Stop` for a user without a name."""
    for name in ("USER", "LOGNAME", "USERNAME"):
        if os.environ.get(name):
            return os.environ[name]
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        message = "Give the name of the person who decides with --actor: this user has no name here."
        raise Stop(message) from None


@dataclass(slots=True)
class Decided:
    """The result for each letter that was named."""

    moved: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "moved": self.moved,
            "refused": [{"id": letter_id, "message": why} for letter_id, why in self.refused.items()],
        }


async def decide_each(letter_ids: Sequence[str], step: Callable[[str], Awaitable[DeadLetter]]) -> Decided:
    """Take the step for each letter. A refused letter does not stop the others."""
    decided = Decided()
    for letter_id in dict.fromkeys(letter_ids):
        try:
            await step(letter_id)
        except (NotFound, ReviewRefused) as error:
            decided.refused[letter_id] = error.message
        else:
            decided.moved.append(letter_id)
    return decided


def report(decided: Decided, done: str, *, json: bool) -> None:
    """Print what was done; exit code 1 if any letter was refused."""
    if json:
        print_json(decided.document())
    else:
        for letter_id in decided.moved:
            say(f"{letter_id} {done}.")
    if decided.refused:
        raise Stop(*(f"{letter_id}: {why}" for letter_id, why in decided.refused.items()), code=REFUSED)
