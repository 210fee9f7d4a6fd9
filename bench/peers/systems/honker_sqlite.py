"""honker on SQLite: one process; each job is claimed and acknowledged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import honker

from bench.peers.counter import count_one
from bench.peers.plan import content, plan

queue = honker.open(str(Path(plan()["folder"]) / "honker.db")).queue("bench")


async def work() -> None:
    """Claim and acknowledge for ever."""
    async for job in queue.claim("worker-1"):
        json.dumps(job.payload)
        count_one()
        job.ack()


def submit(number: int) -> None:
    """One job."""
    queue.enqueue(content(number))


if __name__ == "__main__":
    asyncio.run(work())
