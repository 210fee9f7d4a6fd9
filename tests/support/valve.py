"""A handler that a test holds in its hand."""

from __future__ import annotations

import asyncio

from tests.support.workloads import deliver


class Valve:
    """A handler that waits until its jobs are let through."""

    def __init__(self, outcome=deliver) -> None:
        self.open = asyncio.Event()
        self.entered: list[str] = []
        self.cancelled: list[str] = []
        self._outcome = outcome

    async def __call__(self, job):
        self.entered.append(job.data.id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job.data.id)
            raise
        return self._outcome(job)
