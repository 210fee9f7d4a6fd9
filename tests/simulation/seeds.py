"""Running seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from holdfast.telemetry import events

from .checker import check
from .simulation import Simulation

_PLAIN: Final = {
    events.JOB_ADOPTED: "adopted",
    events.ATTEMPT_STALE: "stale",
    events.BATCH_SPLIT: "batch split",
}

SEEDS: Final = int(os.environ.get("HOLDFAST_SIM_SEEDS", "500"))


@dataclass(frozen=True, slots=True)
class Report:
    """What one seed showed."""

    seed: int
    findings: list[str]
    trace: list[tuple[Any, ...]]
    reached: frozenset[str]
    """The kinds of things that happened."""

    @property
    def digest(self) -> str:
        """Equal for equal traces."""
        return sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()

    def __str__(self) -> str:
        told = "\n  ".join(self.findings)
        return f"seed {self.seed}:\n  {told}\nreproduce: python -m tests.simulation {self.seed} --trace"


def run_seed(seed: int) -> Report:
    """Run one seed and check the run."""
    simulation = Simulation(seed)
    try:
        try:
            simulation.live()
        except Exception as error:  # noqa: BLE001 - a day that cannot end is a finding, with its seed
            simulation.findings.append(f"the day did not end: {error!r}")
        return Report(seed, check(simulation), simulation.trace, frozenset(_reached(simulation)))
    finally:
        simulation.end()


def _reached(simulation: Simulation) -> Iterator[str]:
    """What happened in the run, for the test that the runs reach everything."""
    for old, new in simulation.connection.execute("SELECT DISTINCT old, new FROM watch_moves WHERE old IS NOT NULL"):
        yield f"step {old} -> {new}"
    yield from (f"handled {run.behaviour}" for run in simulation.runs)
    yield from ("stopped" for run in simulation.runs if run.stopped)
    yield from (f"told {request.receipt.recorded_as}" for request in simulation.history.requests if request.receipt)
    for step in simulation.history.steps:
        if step.answer is not None:
            yield f"{step.kind} {'confirmed' if step.answer else 'refused'}"
    if simulation.connection.execute("SELECT 1 FROM dead_letters WHERE key LIKE 'UNREADABLE:%'").fetchone():
        yield "foreign dead-lettered"
    for _, who, what, *details in simulation.trace:
        match what, *details:
            case "killed", str(why):
                yield f"killed {why}"
            case "claim", tuple(answers):
                yield from (f"claim {answer.partition('(')[0]}" for answer in answers)
            case ("wiped", *_):
                yield f"{who} {what}"
            case (_, ("reply lost" | "error") as fault):
                yield fault
            case _:
                yield _PLAIN.get(what, what)
