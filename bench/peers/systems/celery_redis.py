"""Celery on Redis: prefork, as many processes as the machine has cores, messages acknowledged before they run."""

from __future__ import annotations

from typing import Any

from celery import Celery

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

app = Celery("bench", broker=plan()["redis"])


@app.task(name="noop", ignore_result=True)
def noop(job: dict[str, Any]) -> None:  # noqa: ARG001 - it does nothing
    """Do nothing."""
    count_one()


def submit(number: int) -> None:
    """One job."""
    noop.delay(content(number))
