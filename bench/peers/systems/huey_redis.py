"""Huey on Redis: one process, one thread."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

huey = RedisHuey("bench", url=plan()["redis"])


@huey.task()
def noop(job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


def submit(number: int) -> None:
    """One job."""
    noop(content(number))
