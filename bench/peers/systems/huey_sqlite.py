"""Huey on SQLite: one process, one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huey import SqliteHuey

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

huey = SqliteHuey("bench", filename=str(Path(plan()["folder"]) / "huey.db"))


@huey.task()
def noop(job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


def submit(number: int) -> None:
    """One job."""
    noop(content(number))
