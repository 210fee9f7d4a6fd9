"""The ``Worker`` of PyPI's bullmq, as it comes."""

from __future__ import annotations

import asyncio
from typing import Any

from bullmq import Worker

from .lines import race, timed


class Consumer:
    """A worker that counts."""

    def __init__(self, plan: dict[str, Any], queue: str, count: int) -> None:
        options = {
            "connection": plan["url"],
            "prefix": plan["prefix"],
            "concurrency": plan["concurrency"],
            "removeOnComplete": {"count": plan["keep"]},
            "autorun": False,
        }
        self._left = count
        self._done = asyncio.Event()
        self._worker = Worker(queue, self._handle, options)
        self._worker.on("completed", self._completed)
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Work; return when the last job is finished in Redis."""
        self._running = asyncio.create_task(self._worker.run())
        waiting = asyncio.create_task(self._done.wait())
        await asyncio.wait({self._running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not self._done.is_set():
            waiting.cancel()
            message = "The stock Python worker ended before its queue."
            raise RuntimeError(message)

    async def close(self) -> None:
        """Stop it."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _handle(self, _job: Any, _token: str) -> None:  # noqa: ANN401 - bullmq's
        return None

    def _completed(self, *_: Any) -> None:  # noqa: ANN401 - bullmq's
        self._left -= 1
        if self._left <= 0:
            self._done.set()


async def main(plan: dict[str, Any]) -> None:
    """Warm up, then race."""
    warm = Consumer(plan, plan["warm_queue"], plan["warm"])
    await warm.run()
    await warm.close()
    measured = Consumer(plan, plan["queue"], plan["count"])
    await timed(measured.run)
    await measured.close()


if __name__ == "__main__":
    race(main)
