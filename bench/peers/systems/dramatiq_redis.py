"""Dramatiq on Redis: as many processes as the machine has cores, eight threads in each."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

dramatiq.set_broker(RedisBroker(url=plan()["redis"]))


@dramatiq.actor(actor_name="noop")
def noop(job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


def submit(number: int) -> None:
    """One job."""
    noop.send(content(number))
