"""Whether the day kept every promise: the history of the people outside against the store's tables.

Each finding begins with the invariant of DESIGN.md that it breaks.
"""

from __future__ import annotations

from typing import Any, Final

from . import cancel_checks, effect_checks, ledger_checks, letter_checks, schedule_checks
from .facts import Facts

_CHECKS: Final = (
    ledger_checks.receipts,
    ledger_checks.foreign_jobs,
    ledger_checks.histories,
    ledger_checks.attempts_are_remembered,
    ledger_checks.moves,
    ledger_checks.waits,
    ledger_checks.stops,
    ledger_checks.poison,
    ledger_checks.reasons,
    effect_checks.effects,
    effect_checks.authors,
    effect_checks.newest_stands,
    effect_checks.deadlines,
    effect_checks.once,
    cancel_checks.no_more_attempts,
    cancel_checks.handlers_learn_of_it,
    cancel_checks.no_launch,
    cancel_checks.somebody_asked,
    letter_checks.letters,
    letter_checks.dead_letter_queue,
    letter_checks.reviews,
    letter_checks.people_decide,
    letter_checks.replays,
    schedule_checks.ticks,
)


def check(simulation: Any) -> list[str]:
    """Everything that is wrong; an empty list is what we want."""
    facts = Facts(simulation)
    return [*simulation.findings, *(finding for each in _CHECKS for finding in each(facts))]
