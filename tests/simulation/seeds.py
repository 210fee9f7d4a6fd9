"""Running seeds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from .checker import check
from .world import World

SEEDS: Final = int(os.environ.get("HOLDFAST_SIM_SEEDS", "1000"))


@dataclass(frozen=True, slots=True)
class Report:
    """What one seed showed."""

    seed: int
    findings: list[str]
    trace: list[tuple[Any, ...]]
    seconds: float
    """Virtual ones."""

    @property
    def digest(self) -> str:
        """Equal for equal stories."""
        return sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()

    def __str__(self) -> str:
        told = "\n  ".join(self.findings)
        return f"seed {self.seed}:\n  {told}\nreproduce: python -m tests.simulation {self.seed} --trace"


def run_seed(seed: int) -> Report:
    """Live through one seed and check it."""
    world = World(seed)
    try:
        try:
            world.live()
        except Exception as error:  # noqa: BLE001 - a day that cannot end is a finding, with its seed
            world.findings.append(f"the day did not end: {error!r}")
        return Report(seed, check(world), world.trace, world.loop.time())
    finally:
        world.end()
