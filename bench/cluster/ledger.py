"""The ledger alone: what MongoDB uses for each event, here and in another version of the code, which take turns."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .places import Place

BATCH = 50
STEPS = ("record", "claim", "settle")
_RACER = "bench.cluster.racers.ledger"
_ROOT = Path(__file__).parents[2]
_RACE_SECONDS = 300


def measure(
    place: Place, *, events: int, runs: int, against: Path | None, tell: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Medians and ranges of each step, for this version and for the one whose checkout ``against`` names."""
    folders = {"here": _ROOT} | ({} if against is None else {"against": against})
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in folders}
    for number in range(runs):
        for name in sorted(folders, reverse=number % 2 == 0):
            found[name].append(_run(place, folders[name], events))
            used = ", ".join(f"{step} {found[name][-1][step]['mongod_us'] or 0:.0f}" for step in STEPS)
            tell(f"run {number + 1}: {name}: mongod us/event: {used}")
    return {
        name: {step: _medians([each[step] for each in figures]) for step in STEPS} for name, figures in found.items()
    }


def _run(place: Place, folder: Path, events: int) -> dict[str, Any]:
    database = f"{place.mark}{secrets.token_hex(3)}"
    plan = {
        "uri": place.mongo_uri,
        "database": database,
        "pid": place.mongo_pid,
        "events": events,
        "batch": BATCH,
    }
    # This program, with the code of that folder.
    path = os.pathsep.join((str(folder / "src"), str(_ROOT)))
    try:
        finished = subprocess.run(
            [sys.executable, "-m", _RACER, json.dumps(plan)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=_RACE_SECONDS,
        )
    finally:
        place.forget_database(database)
    if finished.returncode:
        message = f"The ledger could not be measured: {finished.stderr}"
        raise RuntimeError(message)
    figures: dict[str, Any] = json.loads(finished.stdout)
    return figures


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    mongod = [run["mongod_us"] for run in runs if run["mongod_us"] is not None]
    return {
        "mongod_us": statistics.median(mongod) if mongod else None,
        "lowest": min(mongod, default=None),
        "highest": max(mongod, default=None),
        "client_us": statistics.median(run["client_us"] for run in runs),
        "commands": runs[-1]["commands"],
        "runs": len(runs),
    }
