"""Cancelling: what a sender was told about its job holds, also for a job in work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.contracts.ledger import Cancelled
from holdfast.contracts.transitions import CANCELLED

from .facts import EPOCH, Facts, Findings, Identity
from .people import Cancel
from .workloads import Run

LEARNS_WITHIN: Final = 2.0
"""Seconds: a worker looks twice a second, and the way to the store may be long."""
LONGEST_FREEZE: Final = 10.0
"""Seconds: a process that was frozen longer ago is awake."""


def no_more_attempts(facts: Facts) -> Findings:
    """A cancelled job is not tried again. A job that waited ends as cancelled."""
    for identity, generation, cancel in _confirmed(facts):
        for step in facts.moves[identity]:
            attempts: list[dict[str, Any]] = step["attempts"]
            opened = step["new"] == "processing" and attempts and attempts[-1]["outcome"] == "running"
            if opened and step["new_generation"] == generation and attempts[-1]["startedAt"] > _ms(cancel.answered):
                yield f"cancel: {identity} was cancelled, and attempt {attempts[-1]['attempt']} began after that"
        ended = (facts.entries[identity]["status"], facts.entries[identity]["note"])
        if cancel.answer is Cancelled.ENDS and ended != ("expired", CANCELLED):
            yield f"cancel: {identity} was to end, and is {ended}"


def handlers_learn_of_it(facts: Facts) -> Findings:
    """The worker of a cancelled job learns of it, and a handler that stops for it ends the job as cancelled."""
    members = {each.name: each for each in facts.simulation.servers}
    for identity, generation, cancel in _confirmed(facts):
        for run in _runs(facts, identity, generation):
            by, ended = cancel.answered + LEARNS_WITHIN, run.ended or 0.0  # a killed process does not count
            sound = not any(cancel.asked - LONGEST_FREEZE < at < by for at in members[run.worker].disturbed)
            if run.workload == "scans" and run.started < cancel.asked and ended > by and sound:
                yield f"cancel: {run.worker} worked on {identity} and did not learn that it was cancelled"
            entry = facts.entries[identity]
            if run.stopped and entry["status"] == "expired" and entry["note"] != CANCELLED:
                yield f"cancel: {identity} stopped, and does not say why"


def no_launch(facts: Facts) -> Findings:
    """I11, I10: what cannot be undone is not cancelled, and what is cancelled is not done any more."""
    for identity, generation, cancel in _confirmed(facts):
        for run in _runs(facts, identity, generation):
            if run.launched is not None and not cancel.asked < run.launched <= cancel.answered:
                when = "before" if run.launched <= cancel.asked else "after"
                yield f"I11: {identity} was launched {when} its cancellation was confirmed"


def somebody_asked(facts: Facts) -> Findings:
    """No job is cancelled by itself."""
    asked = {(each.workload, each.key) for each in facts.history.cancels if each.answer is not Cancelled.TOO_LATE}
    for identity, entry in facts.entries.items():
        if entry["note"] == CANCELLED and identity not in asked:
            yield f"cancel: nobody cancelled {identity}"


def _confirmed(facts: Facts) -> Iterator[tuple[Identity, int, Cancel]]:
    """The cancellations that were confirmed, and the generation that they cancelled.

    Where a replay came between the question and the answer, nobody can tell which generation was cancelled.
    """
    for cancel in facts.history.cancels:
        if cancel.answer:
            identity = (cancel.workload, cancel.key)
            generation = _generation(facts, identity, cancel.asked)
            if generation == _generation(facts, identity, cancel.answered):
                yield identity, generation, cancel


def _generation(facts: Facts, identity: Identity, at: float) -> int:
    return max((step["new_generation"] for step in facts.moves[identity] if step["at"] <= _ms(at)), default=1)


def _runs(facts: Facts, identity: Identity, generation: int) -> Iterator[Run]:
    return (each for each in facts.runs if (each.workload, each.key, each.generation) == (*identity, generation))


def _ms(at: float) -> int:
    """A time of the simulation on the store's clock."""
    return EPOCH + int(at * 1000)
